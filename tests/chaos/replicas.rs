//! The replicas of the reconciler, as processes that are killed, frozen, terminated and started again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nm_tests::programs::program;
use nm_tests::reconciler::Reconciler;

use crate::plan::{REPLICAS, ReplicaHarm};
use crate::requests::Sent;

/// Short, so that many terms fit into a run.
pub(crate) const LEASE_SECONDS: u64 = 6;

/// How long after a freeze a write that was begun before it may be sent.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_millis(500);

/// The log of a replica that is gone.
pub(crate) struct Log {
    pub(crate) pid: u32,
    pub(crate) lines: Vec<String>,
}

/// The replicas, each in a slot of its own.
pub(crate) struct Replicas {
    kubeconfig: PathBuf,
    is_soak: bool,
    slots: Vec<tokio::sync::Mutex<Option<Replica>>>,
    logs: Mutex<Vec<Log>>,
    violations: Mutex<Vec<String>>,
    /// Which process went on after a freeze, and when.
    thawed: Mutex<Vec<(u32, Timestamp)>>,
}

struct Replica {
    /// It is known after the process has ended, too.
    pid: u32,
    process: Reconciler,
}

impl Replicas {
    /// Starts one in each slot.
    pub(crate) fn start(kubeconfig: PathBuf, is_soak: bool) -> Self {
        let mut replicas = Self {
            kubeconfig,
            is_soak,
            slots: Vec::new(),
            logs: Mutex::default(),
            violations: Mutex::default(),
            thawed: Mutex::default(),
        };
        replicas.slots = (0..REPLICAS).map(|_| tokio::sync::Mutex::new(Some(replicas.spawn()))).collect();
        replicas
    }

    fn spawn(&self) -> Replica {
        let lease = LEASE_SECONDS.to_string();
        let level = if self.is_soak { "info" } else { "debug" };
        let mut flags =
            vec!["--log-format", "text", "--log-level", level, "--leader-elect", "--lease-duration", &lease];
        if self.is_soak {
            flags.extend(["--metrics-addr", "127.0.0.1:0"]);
        }
        let process = Reconciler::start_build(&self.kubeconfig, &program("nm-reconciler"), &flags);
        Replica { pid: process.pid(), process }
    }

    /// The slot with this process, unless it is being harmed.
    pub(crate) fn slot_of(&self, pid: u32) -> Option<usize> {
        (0..REPLICAS).find(|slot| self.pid(*slot) == Some(pid))
    }

    /// The process in a slot, unless it is being harmed.
    pub(crate) fn pid(&self, slot: usize) -> Option<u32> {
        Some(self.slots[slot].try_lock().ok()?.as_ref()?.pid)
    }

    /// Does harm to a replica, and starts another one if it is gone. Returns what happened.
    pub(crate) async fn harm(&self, slot: usize, harm: ReplicaHarm, lasts: Duration) -> String {
        let Ok(mut slot) = self.slots[slot].try_lock() else { return "is harmed already".to_owned() };
        let Some(Replica { pid, mut process }) = slot.take() else { return "is gone".to_owned() };
        if process.has_exited() {
            *slot = Some(Replica { pid, process });
            return format!("{pid} has exited");
        }
        match harm {
            ReplicaHarm::Freeze => {
                process.signal("STOP");
                tokio::time::sleep(lasts).await;
                self.thawed.lock().unwrap().push((pid, Timestamp::now()));
                process.signal("CONT");
                *slot = Some(Replica { pid, process });
                return format!("{pid} was frozen");
            }
            ReplicaHarm::Kill => self.end(pid, process).await,
            ReplicaHarm::Terminate => {
                process.signal("TERM");
                let code = process.exit_code().await;
                // A process that has logged nothing yet has not begun.
                if code != Some(0) && !process.log().is_empty() {
                    self.violations.lock().unwrap().push(format!("{pid} exited with {code:?} after SIGTERM"));
                }
                self.end(pid, process).await;
            }
        }
        tokio::time::sleep(lasts).await;
        let next = self.spawn();
        let result = format!("{pid} is gone, {} was started", next.pid);
        *slot = Some(next);
        result
    }

    /// Starts again those that exited by themselves, as a Deployment does. Returns which.
    pub(crate) async fn revive(&self) -> Vec<u32> {
        let mut exited = Vec::new();
        for slot in &self.slots {
            let Ok(mut slot) = slot.try_lock() else { continue };
            if slot.as_mut().is_some_and(|replica| replica.process.has_exited()) {
                let Some(Replica { pid, process }) = slot.replace(self.spawn()) else { continue };
                self.end(pid, process).await;
                exited.push(pid);
            }
        }
        exited
    }

    /// Whether a write was sent by a process as it went on after a freeze, and it did not wait for the answer: it was frozen
    /// between the look at its lease and the write, of which no process can make one step. What such a write may do is limited by its
    /// preconditions, which other invariants check.
    pub(crate) fn was_on_its_way(&self, sent: &Sent) -> bool {
        let has_thawed = |(pid, at): &(u32, Timestamp)| {
            *pid == sent.pid && sent.entry.at >= *at && sent.entry.at.duration_since(*at) < ON_ITS_WAY
        };
        sent.entry.code == 0 && self.thawed.lock().unwrap().iter().any(has_thawed)
    }

    /// The process in each slot, and where it serves its metrics.
    pub(crate) async fn addresses(&self) -> Vec<(u32, SocketAddr)> {
        let mut all = Vec::new();
        for slot in &self.slots {
            if let Some(replica) = &*slot.lock().await {
                all.push((replica.pid, replica.process.metrics_address().await));
            }
        }
        all
    }

    async fn end(&self, pid: u32, process: Reconciler) {
        let lines = process.log();
        process.crash().await;
        self.logs.lock().unwrap().push(Log { pid, lines });
    }

    /// Ends all. Returns the logs of all that there were, and what none of them should have done.
    pub(crate) async fn stop(&self) -> (Vec<Log>, Vec<String>) {
        for slot in &self.slots {
            if let Some(Replica { pid, process }) = slot.lock().await.take() {
                self.end(pid, process).await;
            }
        }
        let logs = std::mem::take(&mut *self.logs.lock().unwrap());
        let mut violations = std::mem::take(&mut *self.violations.lock().unwrap());
        for Log { pid, lines } in &logs {
            let panics = lines.iter().filter(|line| line.contains("panicked"));
            violations.extend(panics.map(|line| format!("{pid}: {line}")));
        }
        (logs, violations)
    }
}
