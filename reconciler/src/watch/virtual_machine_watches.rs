//! The virtual machines on nodes in maintenance, in clusters that have any.
//!
//! A cluster without KubeVirt pays nothing for it: only a pod with KubeVirt's marks on a node in maintenance is a reason
//! to ask discovery, once, whether there are virtual machines at all. Where there are, those of the node are watched,
//! for as long as it has such pods.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::core::Resource;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use nm_shared::cluster::pod;
use nm_shared::drain::virtual_machine::{self, NODE_LABEL, VirtualMachineInstance};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use crate::cache::triggers::Triggers;
use crate::runtime::tasks::Tasks;
use crate::watch::watch_stream::{News, follow, watched, without_managed_fields};

/// Where discovery gave no answer it is asked again, but not sooner.
const PAUSE: Duration = Duration::from_secs(30);

/// The virtual machines of the nodes in maintenance.
pub(crate) struct MachineWatches {
    client: Client,
    triggers: Triggers,
    tasks: Tasks,
    kubevirt: Arc<Mutex<KubeVirt>>,
    watches: Mutex<HashMap<String, MachineWatch>>,
}

/// Whether the cluster has KubeVirt.
enum KubeVirt {
    /// Nobody had a reason to ask.
    Unknown,
    /// Discovery has not answered yet.
    Asked,
    /// It has.
    Present,
    /// It had not when these pods, by their uids, were the reason to ask.
    Absent(HashSet<String>),
    /// Discovery failed.
    Unclear(Instant),
}

struct MachineWatch {
    machines: Store<VirtualMachineInstance>,
    task: AbortHandle,
}

impl Drop for MachineWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MachineWatches {
    /// No watch yet. Each change of a virtual machine wakes the maintenances of its node.
    pub(crate) fn new(client: Client, triggers: Triggers, tasks: Tasks) -> Self {
        let kubevirt = Arc::new(Mutex::new(KubeVirt::Unknown));
        Self { client, triggers, tasks, kubevirt, watches: Mutex::default() }
    }

    /// The virtual machines on `node`, which has these pods, as far as they are known; none where there can be none.
    pub(crate) fn on_node(&self, node: &str, pods: &[Arc<Pod>]) -> Option<Vec<Arc<VirtualMachineInstance>>> {
        let launchers = pods.iter().filter(|pod| virtual_machine::run_by(pod).is_some());
        let launchers: HashSet<&str> = launchers.map(|pod| pod::uid(pod)).collect();
        if launchers.is_empty() {
            self.watches().remove(node);
            return None;
        }
        if !self.is_present(node, &launchers) {
            return None;
        }
        let mut watches = self.watches();
        let watch = watches.entry(node.to_owned()).or_insert_with(|| self.start(node));
        Some(watch.machines.state())
    }

    /// The same for a node that is left alone from now on: nothing is begun for it.
    pub(crate) fn last_seen_on(&self, node: &str) -> Option<Vec<Arc<VirtualMachineInstance>>> {
        self.watches().get(node).map(|watch| watch.machines.state())
    }

    /// Stops watching all nodes but those in maintenance.
    pub(crate) fn retain(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.watches().retain(|node, _| in_maintenance(node));
    }

    fn is_present(&self, node: &str, launchers: &HashSet<&str>) -> bool {
        let mut kubevirt = lock(&self.kubevirt);
        match &*kubevirt {
            KubeVirt::Present => return true,
            KubeVirt::Asked => return false,
            KubeVirt::Absent(reasons) if launchers.iter().all(|uid| reasons.contains(*uid)) => return false,
            KubeVirt::Unclear(since) if since.elapsed() < PAUSE => return false,
            KubeVirt::Unknown | KubeVirt::Absent(_) | KubeVirt::Unclear(_) => {}
        }
        let (mut reasons, told) = match std::mem::replace(&mut *kubevirt, KubeVirt::Asked) {
            KubeVirt::Absent(reasons) => (reasons, false),
            KubeVirt::Unclear(_) => (HashSet::new(), true),
            _ => (HashSet::new(), false),
        };
        reasons.extend(launchers.iter().map(|uid| (*uid).to_owned()));
        let (client, known) = (self.client.clone(), self.kubevirt.clone());
        let (triggers, node) = (self.triggers.clone(), node.to_owned());
        self.tasks.spawn_brief("the discovery of virtual machines", async move {
            let found = discover(&client, reasons, told).await;
            *lock(&known) = found;
            triggers.wake_node(&node);
        });
        false
    }

    fn start(&self, node: &str) -> MachineWatch {
        let (machines, writer) = reflector::store();
        let config = watcher::Config::default().labels(&format!("{NODE_LABEL}={node}"));
        let stream = watched(Api::<VirtualMachineInstance>::all(self.client.clone()), config)
            .modify(without_managed_fields)
            .reflect(writer);
        let (triggers, node) = (self.triggers.clone(), node.to_owned());
        let what = format!("virtualmachineinstances on {node}");
        let task = self.tasks.spawn(format!("the watch on {what}"), async move {
            follow(&what, None, stream, |news| match news {
                News::Changed(_) | News::Listed => triggers.wake_node(&node),
                News::Interrupted => {}
                News::Forbidden(sentence) => {
                    warn!(node, "virtual machines migrate without source, target and age shown: {sentence}");
                }
            })
            .await;
        });
        MachineWatch { machines, task }
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<String, MachineWatch>> {
        lock(&self.watches)
    }
}

/// Asks the API server whether it has virtual machines. Of failures one after another the first is told.
async fn discover(client: &Client, reasons: HashSet<String>, told: bool) -> KubeVirt {
    let plural = VirtualMachineInstance::plural(&());
    match client.list_api_group_resources(&VirtualMachineInstance::api_version(&())).await {
        Ok(found) if found.resources.iter().any(|resource| resource.name == plural) => {
            info!("the cluster has virtual machines");
            KubeVirt::Present
        }
        Ok(_) => KubeVirt::Absent(reasons),
        Err(kube::Error::Api(status)) if status.code == 404 => KubeVirt::Absent(reasons),
        Err(error) => {
            if !told {
                warn!(%error, "cannot tell whether the cluster has virtual machines; it will be asked again");
            }
            KubeVirt::Unclear(Instant::now())
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
