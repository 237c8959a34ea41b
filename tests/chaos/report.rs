//! What a run did, as text and as files.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::Timestamp;
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::UNDO_ANNOTATION;
use nm_tests::invariants::NodeMarks;

use crate::history::Seen;
use crate::replicas::Log;
use crate::requests::Sent;
use crate::settings::Settings;

/// The acts so far, each with the time at which it was over and with what it came to.
#[derive(Debug)]
pub(crate) struct Acts {
    began: Timestamp,
    lines: Mutex<Vec<(Timestamp, String)>>,
}

impl Acts {
    pub(crate) fn begin() -> Self {
        Self { began: Timestamp::now(), lines: Mutex::default() }
    }

    pub(crate) fn add(&self, at: Timestamp, line: String) {
        self.lines.lock().unwrap().push((at, line));
    }

    /// The acts, the requests of the replicas, and the changes of objects.
    fn history(&self, writes: &[Sent], seen: &Seen) -> String {
        let mut lines = self.lines.lock().unwrap().clone();
        lines.extend(writes.iter().map(|Sent { pid, entry }| {
            let Entry { verb, resource, subresource, name, code, took, .. } = entry;
            (entry.at, format!("    {pid} {verb} {resource} {subresource} {name} {code} {took:?}"))
        }));
        lines.extend(changes(seen));
        self.as_text(lines)
    }

    fn as_text(&self, mut lines: Vec<(Timestamp, String)>) -> String {
        lines.sort();
        let at = |time: Timestamp| time.duration_since(self.began).as_secs_f64();
        let lines = lines.into_iter().map(|(time, line)| format!("{:9.3} {line}", at(time)));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Writes everything to files of the run with this seed. Returns their folder.
    pub(crate) fn write(&self, number: u64, logs: &[Log], writes: &[Sent], seen: &Seen) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{number}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("history.log"), self.history(writes, seen)).unwrap();
        for Log { pid, lines } in logs {
            std::fs::write(folder.join(format!("replica-{pid}.log")), lines.join("\n")).unwrap();
        }
        folder
    }

    /// Prints the acts and the violations, with the command that does the same again, and fails.
    pub(crate) fn fail(&self, settings: &Settings, violations: &[String], folder: &Path) -> ! {
        eprintln!("{}", self.as_text(self.lines.lock().unwrap().clone()));
        panic!(
            "seed {}: {} violations:\n{}\nRequests, changes and the logs of the replicas are in {}.\nTo do the same again: {}",
            settings.seed,
            violations.len(),
            violations.join("\n"),
            folder.display(),
            settings.command(),
        );
    }
}

fn changes(seen: &Seen) -> Vec<(Timestamp, String)> {
    let mut lines = Vec::new();
    for version in seen.nodes.all().flatten() {
        let Some(node) = &version.object else { continue };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let record = node.metadata.annotations.as_ref().and_then(|all| all.get(UNDO_ANNOTATION));
        let rv = node.metadata.resource_version.as_deref().unwrap_or_default();
        lines.push((version.at, format!("    node {name} {rv} {:?} {record:?}", NodeMarks::of(node))));
    }
    for version in seen.maintenances.all().flatten() {
        let text = version.object.as_ref().map_or_else(
            || "    a maintenance is gone".to_owned(),
            |one| {
                let status = one.status.clone().unwrap_or_default();
                let deleted = one.metadata.deletion_timestamp.is_some();
                let (name, uid) = (one.metadata.name.as_deref(), one.metadata.uid.as_deref());
                format!(
                    "    maintenance {} {} of {} suspended {} deleted {deleted} {:?} {}",
                    name.unwrap_or_default(),
                    uid.unwrap_or_default(),
                    one.spec.node_name,
                    one.spec.suspend,
                    status.phase,
                    status.last_error
                )
            },
        );
        lines.push((version.at, text));
    }
    for version in seen.leader.all().flatten() {
        let spec = version.object.as_ref().and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.as_ref());
        lines.push((version.at, format!("    leader {holder:?}")));
    }
    lines
}
