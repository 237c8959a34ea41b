//! What the replicas hold in a soak: memory, file descriptors, threads and tasks, again and again. Once the caches are filled,
//! none of them grows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use nm_tests::probes::{get, sample};
use nm_tests::programs::memory;
use tokio::time::Instant;

use crate::replicas::Replicas;

/// Between two measurements.
const INTERVAL: Duration = Duration::from_secs(60);

/// Fewer measurements say nothing: the leader changes, and holds more than the others.
const ENOUGH: usize = 60;

/// What a replica holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    mebibytes: u64,
    descriptors: u64,
    tasks: u64,
}

/// What was measured so far.
#[derive(Debug, Default)]
pub(crate) struct Measured(Mutex<Vec<Held>>);

impl Measured {
    /// Measures each replica again and again, and prints a line.
    pub(crate) async fn measure(&self, replicas: &Replicas, since: Instant) {
        let mut addresses: BTreeMap<u32, SocketAddr> = BTreeMap::new();
        eprintln!("minute process MiB threads descriptors tasks leads");
        loop {
            for (pid, address) in replicas.addresses().await {
                addresses.insert(pid, address);
            }
            for (pid, address) in &addresses {
                let Some(resident) = memory(*pid, "VmRSS") else { continue };
                let metrics = get(*address, "/metrics").await.1;
                let tasks = ["main", "leader"].map(|runtime| {
                    sample(&metrics, &format!("nm_tasks{{runtime=\"{runtime}\"}}")).unwrap_or_default()
                });
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
                let tasks = tasks.iter().sum::<f64>() as u64;
                let held = Held { mebibytes: resident >> 20, descriptors: entries(*pid, "fd"), tasks };
                let leads = sample(&metrics, "nm_leader").unwrap_or_default();
                let (minute, threads) = (since.elapsed().as_secs() / 60, entries(*pid, "task"));
                let Held { mebibytes, descriptors, tasks } = held;
                eprintln!("{minute} {pid} {mebibytes} {threads} {descriptors} {tasks} {leads}");
                self.0.lock().unwrap().push(held);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// What has grown: in the last third of the time, it was a quarter more than in the first.
    pub(crate) fn grown(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        if all.len() < ENOUGH {
            return Vec::new();
        }
        let (first, last) = (&all[..all.len() / 3], &all[all.len() - all.len() / 3..]);
        let most = |of: &[Held], value: fn(&Held) -> u64| of.iter().map(value).max().unwrap_or_default();
        let grown = |name: &str, value: fn(&Held) -> u64| {
            let (before, after) = (most(first, value), most(last, value));
            (after > before + before / 4)
                .then(|| format!("at first at most {before} {name}, at last {after}"))
        };
        let all = [
            grown("MiB", |held| held.mebibytes),
            grown("descriptors", |held| held.descriptors),
            grown("tasks", |held| held.tasks),
        ];
        all.into_iter().flatten().collect()
    }
}

/// How many entries a folder of a process in `/proc` has.
fn entries(pid: u32, folder: &str) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, |all| all.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_grows_only_if_the_last_third_has_more_than_the_first() {
        let grown = |tasks: fn(u64) -> u64| {
            let held = |at| Held { mebibytes: 30, descriptors: 40, tasks: tasks(at) };
            Measured(Mutex::new((0..90).map(held).collect())).grown()
        };
        assert_eq!(grown(|at| if at % 3 == 0 { 80 } else { 9 }), [""; 0], "another one leads");
        assert_eq!(grown(|at| 9 + at), ["at first at most 38 tasks, at last 98"]);
    }
}
