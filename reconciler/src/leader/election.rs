//! Leading by turns: of all replicas the one that holds the lease works, the others stand by.
//!
//! kube-lease-manager takes a lease that is vacant and renews it. Everything that decides who may write is here: when to
//! try ([`Candidate::vacancy`]), where a leader works ([`Stage`]), and until when it may write ([`Fence`]). A term begins
//! and ends with what the watch on the lease tells, and each has a name of its own: nothing that an earlier term left under
//! way can pass for this one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Patch;
use kube::client::ClientBuilder;
use kube::{Api, Client, Config};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::timeout;
use tracing::{debug, error, info, warn};

use crate::client::fence::Fence;
use crate::client::request_metrics::ApiRequests;
use crate::client::write_params::patch_params;
use crate::config::flags::Flags;
use crate::leader::lease_watch::LeaseWatch;
use crate::runtime::leader_runtime::Stage;
use crate::runtime::shutdown::stopped;
use crate::runtime::tasks;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;

/// What failed is tried again so soon.
const PAUSE: Duration = Duration::from_secs(1);

/// Whoever stops gives its lease back within this time, or lets it run out.
const FAREWELL: Duration = Duration::from_millis(1500);

/// Why this replica can neither lead nor stand by.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElectionError {
    #[error("cannot make a client: {0}")]
    Client(#[source] kube::Error),
    #[error("cannot start the leader's runtime: {0}")]
    Runtime(#[source] io::Error),
    #[error("the leader's work broke off: {0}")]
    Work(#[source] JoinError),
    #[error("the leader's work broke off: {0}")]
    Task(#[source] tasks::End),
    #[error("the watch on the leader's lease broke off")]
    Watch,
}

/// One of the replicas that would lead.
pub(crate) struct Candidate {
    config: Config,
    namespace: String,
    replica: String,
    duration: Duration,
    readiness: Readiness,
    metrics: Arc<Metrics>,
}

/// How a term ended.
enum End {
    /// Another may lead.
    Lost(&'static str),
    /// There is no more to be done.
    Done(Result<Result<(), tasks::End>, JoinError>),
}

impl Candidate {
    /// A replica of this name in the cluster of `config`.
    pub(crate) fn new(
        config: &Config,
        flags: &Flags,
        replica: &str,
        readiness: &Readiness,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            config: config.clone(),
            namespace: flags.namespace.clone(),
            replica: replica.to_owned(),
            duration: Duration::from_secs(flags.lease_duration),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
        }
    }

    /// Stands by and leads by turns until `stop`. `work` is what a leader does, with a client that reads at any time
    /// and writes only during the term; after `stop` it comes to its end by itself.
    ///
    /// # Errors
    /// When there is no client or no runtime to be had, and when the work or the watch on the lease breaks off.
    pub(crate) async fn run<W>(
        &self,
        stop: watch::Receiver<bool>,
        work: impl Fn(Client) -> W,
    ) -> Result<(), ElectionError>
    where
        W: Future<Output = Result<(), tasks::End>> + Send + 'static,
    {
        // A leader renews more often than this, so a watch that tells nothing for so long is dead.
        let watched = Api::<Lease>::namespaced(self.client(self.duration)?, &self.namespace);
        let seen = LeaseWatch::start(watched, self.readiness.check("leader-election"));
        tokio::select! {
            done = self.take_part(seen.clone(), stop, work) => done,
            () = seen.broke_off() => Err(ElectionError::Watch),
        }
    }

    async fn take_part<W>(
        &self,
        mut seen: LeaseWatch,
        stop: watch::Receiver<bool>,
        work: impl Fn(Client) -> W,
    ) -> Result<(), ElectionError>
    where
        W: Future<Output = Result<(), tasks::End>> + Send + 'static,
    {
        let client = self.client(self.duration / 3)?;
        let leases = Api::<Lease>::namespaced(client.clone(), &self.namespace);
        let mut last_failure = String::new();
        while !*stop.borrow() {
            tokio::select! {
                () = vacancy(&leases, &mut seen) => {}
                () = stopped(stop.clone()) => return Ok(()),
            }
            let identity = format!("{}_{}", self.replica, Timestamp::now().as_millisecond());
            let elected = tokio::select! {
                elected = self.stand(&client, &mut seen, &identity) => elected,
                () = stopped(stop.clone()) => Ok(None),
            };
            match elected {
                Ok(Some((manager, fence))) => {
                    last_failure.clear();
                    if let End::Done(ended) = self.lead(manager, &fence, &mut seen, &identity, &work).await? {
                        farewell(&leases, &identity).await;
                        return ended.map_err(ElectionError::Work)?.map_err(ElectionError::Task);
                    }
                }
                Ok(None) => farewell(&leases, &identity).await,
                Err(failure) => {
                    if failure != last_failure {
                        warn!("cannot take the leader's lease: {failure}");
                        last_failure = failure;
                    }
                    // It may have been taken all the same.
                    farewell(&leases, &identity).await;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// Tries to take the vacant lease, and returns what keeps it and what ends with it; none if another was faster.
    async fn stand(
        &self,
        client: &Client,
        seen: &mut LeaseWatch,
        identity: &str,
    ) -> Result<Option<(LeaseManager, Fence)>, String> {
        let attempt = async {
            let seconds = self.duration.as_secs();
            let manager = LeaseManagerBuilder::new(client.clone(), leader_lease::NAME)
                .with_namespace(&self.namespace)
                .with_identity(identity)
                .with_duration(seconds)
                // Renewed after a third of its duration.
                .with_grace(seconds - seconds / 3)
                .build()
                .await
                .map_err(|error| error.to_string())?;
            let taken = async { manager.changed().await.map_err(|error| Some(error.to_string())) };
            let elected = async { outcome(seen, identity).await.ok_or(None) };
            match tokio::try_join!(taken, elected) {
                // Another clock may be ahead by a fifth of the duration before two lead at once.
                Ok((_, renewed)) => Ok(Some((manager, Fence::new(self.duration * 4 / 5, renewed)))),
                Err(None) => Ok(None),
                Err(Some(failure)) => Err(failure),
            }
        };
        let in_time = timeout(self.duration / 3, attempt).await;
        in_time.unwrap_or_else(|_| Err("the API server did not answer in time".to_owned()))
    }

    /// Works for as long as the lease is ours.
    async fn lead<W>(
        &self,
        manager: LeaseManager,
        fence: &Fence,
        seen: &mut LeaseWatch,
        identity: &str,
        work: impl Fn(Client) -> W,
    ) -> Result<End, ElectionError>
    where
        W: Future<Output = Result<(), tasks::End>> + Send + 'static,
    {
        let stage = Stage::new().map_err(ElectionError::Runtime)?;
        let builder = stage.make(|| ClientBuilder::try_from(self.config.clone()));
        let builder = builder.map_err(ElectionError::Client)?;
        let builder = builder.with_layer(&ApiRequests(self.metrics.clone())).with_layer(fence);
        let client = stage.make(|| builder.build());
        info!(identity, "leading");
        self.metrics.leads(true);
        let mut work = stage.perform(work(client));
        let end = tokio::select! {
            biased;
            () = fence.closed() => End::Lost("the lease was not renewed in time"),
            () = tenure_ends(seen, fence, identity) => End::Lost("the lease is another's"),
            failure = keep_on(&manager) => End::Lost(failure),
            ended = &mut work => End::Done(ended),
        };
        fence.close();
        drop(stage);
        self.metrics.leads(false);
        if let End::Lost(why) = end {
            warn!(identity, "leading no more, standing by: {why}");
        }
        Ok(end)
    }

    /// A client whose requests fail when the API server is silent for so long.
    fn client(&self, patience: Duration) -> Result<Client, ElectionError> {
        let mut config = self.config.clone();
        config.connect_timeout = Some(patience);
        config.read_timeout = Some(patience);
        config.reset_reader_on_write = true;
        let builder = ClientBuilder::try_from(config).map_err(ElectionError::Client)?;
        Ok(builder.with_layer(&ApiRequests(self.metrics.clone())).build())
    }
}

/// Waits until nobody leads. A lease that has run out is made vacant here, as it was seen and not otherwise, so that of
/// several who find it so none can end the term of the one that was faster.
async fn vacancy(leases: &Api<Lease>, seen: &mut LeaseWatch) {
    let mut leader = String::new();
    loop {
        let patience = match seen.tenure() {
            None => Duration::MAX,
            Some(LeaderLeaseState::Released) => return,
            Some(LeaderLeaseState::Expired) => {
                match end_tenure(leases, |tenure| *tenure == LeaderLeaseState::Expired).await {
                    Ok(_) => return,
                    Err(failure) => {
                        debug!(%failure, "the lease that has run out is not vacant yet");
                        PAUSE
                    }
                }
            }
            Some(LeaderLeaseState::Held { by, until, .. }) => {
                if by != leader {
                    info!(leader = by, "standing by");
                    leader = by;
                }
                Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
            }
        };
        // The time may be over before there is news.
        let _ = timeout(patience, seen.changed()).await;
    }
}

/// When we took the lease, once somebody has; none if that is another.
async fn outcome(seen: &mut LeaseWatch, identity: &str) -> Option<Timestamp> {
    loop {
        if let Some(LeaderLeaseState::Held { by, renewed, .. }) = seen.tenure() {
            return (by == identity).then_some(renewed);
        }
        seen.changed().await;
    }
}

/// Tells the fence of renewals until the lease is not ours any more.
async fn tenure_ends(seen: &mut LeaseWatch, fence: &Fence, identity: &str) {
    loop {
        match seen.tenure() {
            Some(LeaderLeaseState::Held { by, renewed, .. }) if by == identity => fence.renew(renewed),
            _ => return,
        }
        seen.changed().await;
    }
}

/// Has the manager renew the lease until it finds another's. A failure is not the end: there is time for some more.
async fn keep_on(manager: &LeaseManager) -> &'static str {
    let mut fails = false;
    loop {
        match manager.changed().await {
            Ok(false) => return "the lease was taken over",
            Ok(true) => {}
            Err(error) => {
                if !std::mem::replace(&mut fails, true) {
                    warn!(%error, "cannot renew the leader's lease; it will be tried again");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Gives the lease back if it is ours, so that another need not wait for its end.
async fn farewell(leases: &Api<Lease>, identity: &str) {
    let ours =
        |tenure: &LeaderLeaseState| matches!(tenure, LeaderLeaseState::Held { by, .. } if by == identity);
    match timeout(FAREWELL, end_tenure(leases, ours)).await {
        Ok(Ok(true)) => info!(identity, "gave the lease back"),
        Ok(Ok(false)) => {}
        Ok(Err(error)) => debug!(%error, "the lease is not given back"),
        Err(_) => error!("the lease is not given back: no answer in time"),
    }
}

/// Makes the lease vacant, and says so, if what it says now is what is `meant`.
async fn end_tenure(leases: &Api<Lease>, meant: impl Fn(&LeaderLeaseState) -> bool) -> kube::Result<bool> {
    let Some(lease) = leases.get_opt(leader_lease::NAME).await? else { return Ok(false) };
    if !meant(&leader_lease::state(Some(&lease), Timestamp::now())) {
        return Ok(false);
    }
    let patch = Patch::Merge(leader_lease::release_patch(&lease));
    leases.patch(leader_lease::NAME, &patch_params(), &patch).await.map(|_| true)
}
