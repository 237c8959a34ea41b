//! How the measured programs reach the API server: directly, or through a proxy that delays all requests and throttles some
//! evictions. The benchmark itself and its observer always reach it directly.

use std::path::PathBuf;
use std::time::Duration;

use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use nm_tests::cluster::Cluster;
use nm_tests::fault_proxy::FaultProxy;
use tempfile::TempDir;

use crate::scenario::number;

/// Seconds, as priority and fairness answers.
const RETRY_AFTER: u32 = 1;

/// The way to the API server for all programs of a round.
pub(crate) struct Route {
    /// A kubeconfig of an administrator.
    pub(crate) kubeconfig: PathBuf,
    /// A kubeconfig of the reconciler's service account.
    pub(crate) reconciler_kubeconfig: PathBuf,
    /// With its kubeconfigs.
    proxy: Option<(FaultProxy, TempDir)>,
}

impl Route {
    /// The way that `NM_DRAIN_DELAY` and `NM_DRAIN_THROTTLED` ask for.
    pub(crate) async fn to(cluster: &Cluster) -> Self {
        let (delay, throttled) = faults();
        let (kubeconfig, reconciler_kubeconfig) = (cluster.kubeconfig(), cluster.reconciler_kubeconfig());
        if delay.is_zero() && throttled == 0 {
            return Self { kubeconfig: kubeconfig.to_owned(), reconciler_kubeconfig, proxy: None };
        }
        let proxy = FaultProxy::start(kubeconfig).await.unwrap();
        proxy.faults().add(Rule::new(Target::any(), Action::Delay(delay)));
        let throttle = Action::Fail(Failure::Throttled { retry_after: RETRY_AFTER }, Moment::BeforeEffect);
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        let share = When::Chance { probability: throttled as f64 / 100.0, seed: 7 };
        proxy.faults().add(Rule::new(Target::any().subresource("eviction"), throttle).when(share));
        let files = tempfile::tempdir().unwrap();
        let write = |name, kubeconfig: String| {
            let path = files.path().join(name);
            std::fs::write(&path, kubeconfig).unwrap();
            path
        };
        Self {
            kubeconfig: write("admin", proxy.kubeconfig()),
            reconciler_kubeconfig: write("reconciler", proxy.kubeconfig_of(&reconciler_kubeconfig)),
            proxy: Some((proxy, files)),
        }
    }

    /// The proxy, if there is one.
    pub(crate) fn proxy(&self) -> Option<&FaultProxy> {
        self.proxy.as_ref().map(|(proxy, _)| proxy)
    }
}

/// How much each request is delayed, and the percentage of the evictions that is throttled.
pub(crate) fn faults() -> (Duration, u64) {
    (Duration::from_millis(number("NM_DRAIN_DELAY", 0)), number("NM_DRAIN_THROTTLED", 0))
}
