//! What the replicas hold in a soak: memory, file descriptors, threads and tasks, again and again. Once the caches are filled,
//! none of them grows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use nm_tests::probes::{get, sample};
use nm_tests::programs::memory;
use tokio::time::Instant;

use crate::replicas::Replicas;

/// Between two measurements.
const INTERVAL: Duration = Duration::from_secs(60);

/// Prints a line of each replica again and again.
pub(crate) async fn measure(replicas: &Replicas, since: Instant) {
    let mut addresses: BTreeMap<u32, SocketAddr> = BTreeMap::new();
    eprintln!(
        "{:>7} {:>8} {:>8} {:>8} {:>12} {:>8} {:>6}",
        "minute", "process", "MiB", "threads", "descriptors", "tasks", "leads"
    );
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
            eprintln!(
                "{:>7} {pid:>8} {:>8.1} {:>8} {:>12} {:>8} {:>6}",
                since.elapsed().as_secs() / 60,
                mebibytes(resident),
                entries(*pid, "task"),
                entries(*pid, "fd"),
                tasks.iter().sum::<f64>(),
                sample(&metrics, "nm_leader").unwrap_or_default(),
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// How many entries a folder of a process in `/proc` has.
fn entries(pid: u32, folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, Iterator::count)
}
