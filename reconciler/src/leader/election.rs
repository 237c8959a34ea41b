//! Leader election: the replica that holds the lease works, the others stand by.
//!
//! kube-lease-manager renews the lease. Everything that decides who may write is here: when to try
//! ([`wait_until_vacant`]), who is the leader then ([`take`]), where a leader works ([`LeaderRuntime`]) and until when it
//! may write ([`Fence`]). The watch on the lease determines when a term begins and ends. Each term has an identity of its
//! own, so that nothing that an earlier term left in progress is taken for this one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Patch;
use kube::{Api, Client};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use nm_shared::cluster::leader_lease;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::{timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::client::fence::Fence;
use crate::client::request_metrics::RequestMetricsLayer;
use crate::client::{ApiServer, TermClient, http1_builder, patch_params, post_params};
use crate::config::flags::Flags;
use crate::leader::lease_watch::{Leadership, LeaseWatch};
use crate::runtime::last_failure::LastFailure;
use crate::runtime::leader_runtime::LeaderRuntime;
use crate::runtime::shutdown::shutdown_begins;
use crate::runtime::tasks::TaskExit;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;

/// How long to wait after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long the release of the lease may take. After that it expires.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(1500);

/// Why this replica can neither lead nor stand by.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElectionError {
    #[error("cannot create a client: {0}")]
    Client(#[source] kube::Error),
    #[error("cannot start the leader's runtime: {0}")]
    Runtime(#[source] io::Error),
    #[error("the leader's work ended unexpectedly: {0}")]
    Work(#[source] JoinError),
    #[error("the leader's work ended unexpectedly: {0}")]
    Task(#[source] TaskExit),
    #[error("the watch on the leader's lease ended unexpectedly")]
    Watch,
}

/// Why the lease was not taken.
#[derive(Debug, thiserror::Error)]
enum AcquireError {
    #[error(transparent)]
    Lease(#[from] LeaseManagerError),
    #[error(transparent)]
    Client(#[from] kube::Error),
    #[error("the API server did not answer in time")]
    Timeout,
    /// Another replica was faster, or shutdown has begun.
    #[error("the lease was not acquired")]
    NotAcquired,
}

/// A replica that takes part in the election.
pub(crate) struct Candidate {
    server: ApiServer,
    namespace: String,
    replica: String,
    duration: Duration,
    readiness: Readiness,
    metrics: Arc<Metrics>,
}

enum TermEnd {
    /// Another replica may lead.
    Lost(&'static str),
    /// The work has ended.
    Done(Result<Result<(), TaskExit>, JoinError>),
}

impl Candidate {
    /// A replica of this name in the cluster of `server`.
    pub(crate) fn new(
        server: &ApiServer,
        flags: &Flags,
        replica: &str,
        readiness: &Readiness,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            server: server.clone(),
            namespace: flags.namespace.clone(),
            replica: replica.to_owned(),
            duration: Duration::from_secs(flags.lease_duration),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
        }
    }

    /// Stands by and leads until shutdown. `work` is what a leader does, with a client that reads at any time and writes
    /// only during the term. After shutdown it ends by itself.
    ///
    /// # Errors
    /// When there is no client or runtime, and when the work or the watch on the lease ends unexpectedly.
    pub(crate) async fn run<W>(
        &self,
        shutdown: watch::Receiver<bool>,
        work: impl Fn(TermClient) -> W,
    ) -> Result<(), ElectionError>
    where
        W: Future<Output = Result<(), TaskExit>> + Send + 'static,
    {
        // A leader renews more often than this, so a watch that is silent for longer has lost its connection.
        let watched = Api::<Lease>::namespaced(self.client(self.duration)?, &self.namespace);
        let lease = LeaseWatch::start(watched, self.readiness.check("leader-election"));
        tokio::select! {
            done = self.take_part(lease.clone(), shutdown, work) => done,
            () = lease.ended() => Err(ElectionError::Watch),
        }
    }

    async fn take_part<W>(
        &self,
        mut lease: LeaseWatch,
        shutdown: watch::Receiver<bool>,
        work: impl Fn(TermClient) -> W,
    ) -> Result<(), ElectionError>
    where
        W: Future<Output = Result<(), TaskExit>> + Send + 'static,
    {
        let client = self.client(self.duration / 3)?;
        let leases = Api::<Lease>::namespaced(client.clone(), &self.namespace);
        let [mut last_failure, mut last_release] = [(); 2].map(|()| LastFailure::default());
        while !*shutdown.borrow() {
            let vacant = tokio::select! {
                vacant = wait_until_vacant(&mut lease) => vacant,
                () = shutdown_begins(shutdown.clone()) => return Ok(()),
            };
            let identity = format!("{}_{}", self.replica, Timestamp::now().as_millisecond());
            let acquired = tokio::select! {
                acquired = self.acquire(&client, &mut lease, vacant.as_deref(), &identity) => acquired,
                () = shutdown_begins(shutdown.clone()) => Err(AcquireError::NotAcquired),
            };
            match acquired {
                Ok((manager, fence)) => {
                    last_failure.clear();
                    let end = self.lead(manager, &fence, &mut lease, &identity, &work).await?;
                    if let TermEnd::Done(done) = end {
                        release(&leases, &identity, &mut last_release).await;
                        return done.map_err(ElectionError::Work)?.map_err(ElectionError::Task);
                    }
                }
                // In either case the lease may have been taken nevertheless.
                Err(AcquireError::NotAcquired) => release(&leases, &identity, &mut last_release).await,
                Err(failure) => {
                    let failure = failure.to_string();
                    if last_failure.is_new(&failure) {
                        warn!("cannot take the leader's lease: {failure}");
                    }
                    release(&leases, &identity, &mut last_release).await;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
        Ok(())
    }

    /// Tries to take the vacant lease. Returns what renews it, and the fence of the term.
    async fn acquire(
        &self,
        client: &Client,
        lease: &mut LeaseWatch,
        vacant: Option<&Lease>,
        identity: &str,
    ) -> Result<(LeaseManager, Fence), AcquireError> {
        let attempt = async {
            let seconds = self.duration.as_secs();
            let leases = Api::<Lease>::namespaced(client.clone(), &self.namespace);
            if !take(&leases, vacant, identity, seconds).await? {
                // The watch on the lease may not have delivered yet who was faster.
                let _ = timeout(RETRY_INTERVAL, lease.changed()).await;
                return Err(AcquireError::NotAcquired);
            }
            let manager = LeaseManagerBuilder::new(client.clone(), leader_lease::NAME)
                .with_namespace(&self.namespace)
                .with_identity(identity)
                .with_duration(seconds)
                // Renewed after a third of its duration.
                .with_grace(seconds - seconds / 3)
                .build()
                .await?;
            let taken = async { manager.changed().await.map_err(AcquireError::from) };
            let acquired = async { acquired_at(lease, identity).await.ok_or(AcquireError::NotAcquired) };
            let (_, renewed) = tokio::try_join!(taken, acquired)?;
            // Another replica's clock may be ahead by a fifth of the duration before two lead at once.
            Ok((manager, Fence::new(self.duration * 4 / 5, renewed)))
        };
        timeout(self.duration / 3, attempt).await.unwrap_or(Err(AcquireError::Timeout))
    }

    /// Works for as long as this replica holds the lease.
    async fn lead<W>(
        &self,
        manager: LeaseManager,
        fence: &Fence,
        lease: &mut LeaseWatch,
        identity: &str,
        work: impl Fn(TermClient) -> W,
    ) -> Result<TermEnd, ElectionError>
    where
        W: Future<Output = Result<(), TaskExit>> + Send + 'static,
    {
        let runtime = LeaderRuntime::new().map_err(ElectionError::Runtime)?;
        let client = runtime.build(|| TermClient::new(&self.server, &self.metrics, Some(fence)));
        let client = client.map_err(ElectionError::Client)?;
        info!(identity, "leading");
        self.metrics.leads(Some(runtime.handle()));
        let mut work = runtime.spawn(work(client));
        let end = tokio::select! {
            biased;
            () = fence.closed() => TermEnd::Lost("the lease was not renewed in time"),
            () = follow_renewals(lease, fence, identity) => TermEnd::Lost("another replica holds the lease"),
            failure = keep_renewing(&manager) => TermEnd::Lost(failure),
            done = &mut work => TermEnd::Done(done),
        };
        fence.close();
        self.metrics.leads(None);
        drop(runtime);
        if let TermEnd::Lost(why) = end {
            warn!(identity, "no longer leading, standing by: {why}");
        }
        Ok(end)
    }

    /// A client whose requests fail when the API server is silent for this long.
    fn client(&self, silence_timeout: Duration) -> Result<Client, ElectionError> {
        let mut server = self.server.clone();
        server.config.connect_timeout = Some(silence_timeout);
        server.config.read_timeout = Some(silence_timeout);
        server.config.reset_reader_on_write = true;
        let builder = http1_builder(&server).map_err(ElectionError::Client)?;
        Ok(builder.with_layer(&RequestMetricsLayer(self.metrics.clone())).build())
    }
}

/// Waits until no replica leads, and returns the lease as it is then.
async fn wait_until_vacant(lease: &mut LeaseWatch) -> Option<Box<Lease>> {
    let mut leader = String::new();
    loop {
        match lease.state() {
            None => lease.changed().await,
            Some(Leadership::Vacant(vacant)) => return vacant,
            Some(Leadership::Leads { by, expires, .. }) => {
                if by != leader {
                    info!(leader = by, "standing by");
                    leader = by;
                }
                // The lease may expire without an event.
                let _ = timeout_at(expires, lease.changed()).await;
            }
        }
    }
}

/// Takes a vacant lease only as it was last seen, so that of several replicas that find it vacant one is the leader. Returns
/// whether it was taken.
async fn take(
    leases: &Api<Lease>,
    vacant: Option<&Lease>,
    identity: &str,
    seconds: u64,
) -> kube::Result<bool> {
    let now = Timestamp::now();
    let taken = match vacant {
        None => {
            let lease = leader_lease::new(identity, seconds, now);
            leases.create(&post_params(), &lease).await
        }
        Some(vacant) => {
            let patch = Patch::Merge(leader_lease::take_patch(vacant, identity, seconds, now));
            leases.patch(leader_lease::NAME, &patch_params(), &patch).await
        }
    };
    match taken {
        Ok(_) => Ok(true),
        // Another replica was faster, or the lease was deleted.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

/// When this replica took the lease; none if another one took it.
async fn acquired_at(lease: &mut LeaseWatch, identity: &str) -> Option<Timestamp> {
    let mut has_changed = false;
    loop {
        match lease.state() {
            Some(Leadership::Leads { by, renewed, .. }) => return (by == identity).then_some(renewed),
            // It was released again.
            Some(Leadership::Vacant(_)) if has_changed => return None,
            _ => lease.changed().await,
        }
        has_changed = true;
    }
}

/// Extends the fence with each renewal, until the lease is no longer ours.
async fn follow_renewals(lease: &mut LeaseWatch, fence: &Fence, identity: &str) {
    loop {
        match lease.state() {
            Some(Leadership::Leads { by, renewed, .. }) if by == identity => fence.renew(renewed),
            _ => return,
        }
        lease.changed().await;
    }
}

/// Renews the lease until another replica holds it. A failure does not end this: there is time for further attempts.
async fn keep_renewing(manager: &LeaseManager) -> &'static str {
    let mut is_failing = false;
    loop {
        match manager.changed().await {
            Ok(false) => return "another replica took the lease",
            Ok(true) => {}
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    warn!(%error, "cannot renew the leader's lease; retrying");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

/// Releases the lease if it is ours, so that another replica does not have to wait until it expires.
/// While an API server does not answer, a replica that stands by tries that again and again, and logs it once.
async fn release(leases: &Api<Lease>, identity: &str, last_failure: &mut LastFailure) {
    let Ok(released) = timeout(RELEASE_TIMEOUT, vacate(leases, identity)).await else {
        if last_failure.is_new("no answer in time") {
            warn!("lease not released: no answer in time");
        }
        return;
    };
    last_failure.clear();
    match released {
        Ok(true) => info!(identity, "lease released"),
        Ok(false) => {}
        Err(error) => debug!(%error, "lease not released"),
    }
}

/// Makes the lease vacant if it is held by `identity`, and returns whether it was.
async fn vacate(leases: &Api<Lease>, identity: &str) -> kube::Result<bool> {
    let Some(lease) = leases.get_opt(leader_lease::NAME).await? else { return Ok(false) };
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    if holder != Some(identity) {
        return Ok(false);
    }
    let patch = Patch::Merge(leader_lease::release_patch(&lease, Timestamp::now()));
    leases.patch(leader_lease::NAME, &patch_params(), &patch).await.map(|_| true)
}
