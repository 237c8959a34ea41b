//! Whether nm-reconciler is ready: its pods run and its webhook answers.

use std::cell::RefCell;
use std::time::Duration;

use kube::api::ListParams;

use crate::client::cluster::Cluster;
use crate::client::objects;
use crate::client::webhook_probe::{self, Answer};
use crate::error::Error;
use crate::error::setup_error::SetupError;
use crate::install::installed::Installed;
use crate::install::manifests;
use crate::install::rollout;
use crate::interaction::progress;
use crate::terminal::output::Output;

/// How often it is looked whether it is ready.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until it runs and its webhook answers, and says so.
///
/// # Errors
///
/// When the server refuses to be asked, or it is not ready in time.
pub(crate) async fn wait(
    namespace: &str,
    timeout: Duration,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<String, Error> {
    let why = RefCell::new(String::from("nothing is known of it yet"));
    let look = async {
        loop {
            match readiness(namespace, cluster).await {
                Ok(Ok(ready)) => return Ok(ready),
                Ok(Err(missing)) => drop(why.replace(missing)),
                // What was applied a moment ago can be seen; a server that is busy will be less so.
                Err(error) if error.is_passing() => drop(why.replace(error.to_string())),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let waiting = || format!("waiting until nm-reconciler is ready: {}", why.borrow());
    let bounded = Box::pin(progress::within(timeout, look));
    if let Some(ended) = progress::during(out, waiting, bounded).await {
        return ended;
    }
    let (namespace, why) = (namespace.to_owned(), why.take());
    Err(SetupError::NotReady { after: timeout, why, namespace }.into())
}

/// That it is ready, or what is missing.
async fn readiness(namespace: &str, cluster: &Cluster) -> Result<Result<String, String>, Error> {
    let installed = Installed::find(cluster, Some(namespace)).await?;
    let selector = ListParams::default().labels(&manifests::selector());
    let pods = objects::list(cluster, ("v1", "Pod"), Some(namespace), &selector).await?;
    let replicas = match rollout::ready(&installed.deployment.unwrap_or_default(), &pods) {
        Ok(replicas) => replicas,
        Err(missing) => return Ok(Err(format!("deployment.apps/nm-reconciler: {missing}"))),
    };
    let ready = format!("nm-reconciler is ready in namespace {namespace}: {replicas} replicas");
    Ok(match webhook_probe::ask(cluster).await? {
        Answer::Given => Ok(format!("{ready}, and the webhook answers")),
        Answer::Failed(why) => Err(format!("the webhook does not answer: {why}")),
        Answer::NotAsked => Err(String::from("the API server does not ask the webhook yet")),
        Answer::Anothers(said) => Ok(format!("{ready}; another webhook refuses maintenances: {said}")),
    })
}
