//! The invariants of requests: who wrote when, and which pods were evicted. The proxy logs what each replica sent, and the
//! audit log of the API server what arrived.

use std::collections::HashMap;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::{NodeMaintenance, Suspension};
use nm_tests::invariants::{
    Removal, TimedRequest, Violation, one_removal_at_a_time, one_writer, removal_is_wanted,
};
use nm_tests::requests::{is_by_reconciler, is_write};
use serde_json::Value;

use crate::history::{Seen, Version, nodes_of_pods, pid_of_term, terms};
use crate::people::Resumed;

/// How long after a status that says that a maintenance is suspended an eviction may still arrive at the proxy.
const SUSPENSION_LATENESS: SignedDuration = SignedDuration::from_secs(1);

/// How long the proxy may take to notice that a client has lost or closed a connection. The client may have sent the request
/// again by then.
const LOSS_NOTICED_WITHIN: SignedDuration = SignedDuration::from_secs(1);

/// A request of a replica.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) pid: u32,
    pub(crate) entry: Entry,
}

/// The requests of replicas in a log that change something, the election aside.
pub(crate) fn writes(log: Vec<Entry>) -> Vec<Sent> {
    // A standby may create the leader's lease.
    let is_election = |entry: &Entry| entry.resource == "leases" && entry.namespace != LEASE_NAMESPACE;
    let is_wanted = |entry: &Entry| is_by_reconciler(entry) && is_write(entry) && !is_election(entry);
    log.into_iter()
        .filter(is_wanted)
        .filter_map(|entry| Some(Sent { pid: pid(&entry.user_agent)?, entry }))
        .collect()
}

/// The process id at the end of the user agent.
fn pid(user_agent: &str) -> Option<u32> {
    user_agent.strip_suffix(')')?.rsplit('-').next()?.parse().ok()
}

/// The requests in an audit log since then.
///
/// # Panics
/// If the log cannot be read.
pub(crate) fn audited(path: &Path, since: Timestamp) -> Vec<Entry> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter_map(|event| audit_entry(&event)).filter(|entry| entry.at >= since).collect()
}

fn audit_entry(event: &Value) -> Option<Entry> {
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let time = |path: &str| text(path).parse::<Timestamp>().ok();
    let verbs = ["create", "update", "patch", "delete", "deletecollection"];
    let verb = *verbs.iter().find(|verb| **verb == text("/verb"))?;
    let (at, ended) = (time("/requestReceivedTimestamp")?, time("/stageTimestamp")?);
    let code = event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
    Some(Entry {
        at,
        user_agent: text("/userAgent"),
        user: text("/user/username"),
        verb,
        group: text("/objectRef/apiGroup"),
        resource: text("/objectRef/resource"),
        subresource: text("/objectRef/subresource"),
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        code: u16::try_from(code).ok()?,
        took: ended.duration_since(at).unsigned_abs(),
        ..Entry::default()
    })
}

/// The accepted evictions.
pub(crate) fn evictions(writes: &[Sent]) -> impl Iterator<Item = &Sent> {
    writes.iter().filter(|sent| sent.entry.subresource == "eviction" && sent.entry.code == 201)
}

/// The accepted restarts of Deployments.
pub(crate) fn surges(writes: &[Sent]) -> impl Iterator<Item = &Sent> {
    writes.iter().filter(|sent| sent.entry.resource == "deployments" && sent.entry.code == 200)
}

/// Checks the writes of all replicas. Those in an audit log may arrive `late`, as they were sent in time and delayed on the
/// way.
pub(crate) fn check(writes: &[Sent], seen: &Seen, resumed: &[Resumed], late: SignedDuration) -> Vec<String> {
    let mut violations = Vec::new();
    let mut check = |result: Result<(), Violation>| violations.extend(result.err().map(|it| it.to_string()));
    match in_terms(writes, &terms(seen), late) {
        Ok(writes) => check(one_writer(&writes)),
        Err(why) => check(Err(Violation { invariant: "one writer", facts: why })),
    }
    let of_one_pod = |sent: &Sent| {
        let Sent { pid, entry } = sent;
        let key = format!("{}/{} by {pid}", entry.namespace, entry.name);
        let ended = entry.at + entry.took;
        let is_lost = entry.code == 0;
        let ended = if is_lost { (ended - LOSS_NOTICED_WITHIN).max(entry.at) } else { ended };
        TimedRequest { key, began: entry.at, ended }
    };
    let removals: Vec<TimedRequest> =
        writes.iter().filter(|sent| sent.entry.subresource == "eviction").map(of_one_pod).collect();
    if late.is_zero() {
        check(one_removal_at_a_time(&removals));
    }
    let nodes = nodes_of_pods(seen);
    let maintenances = times_of_maintenances(seen, resumed);
    for Sent { entry, .. } in evictions(writes) {
        // Pods of others on the nodes are not watched.
        let Some(node) = nodes.get(&entry.name) else { continue };
        let of_node = maintenances.get(node).map(Vec::as_slice).unwrap_or_default();
        // The log has no bodies, so the precondition is left to other suites.
        let removal = Removal {
            precondition: Some(entry.name.clone()),
            pod: entry.name.clone(),
            in_maintenance: of_node.iter().any(|maintenance| maintenance.allows(entry.at, late)),
        };
        check(removal_is_wanted(&removal).map_err(|mut violation| {
            violation.facts = format!("{} on {node} at {}: {of_node:?}", violation.facts, entry.at);
            violation
        }));
    }
    violations
}

/// Each write with the term in which it was made, or the first that no term explains.
fn in_terms(
    writes: &[Sent],
    terms: &[(String, Timestamp)],
    late: SignedDuration,
) -> Result<Vec<TimedRequest>, String> {
    let next = terms.iter().skip(1).map(|(_, acquired)| *acquired).chain([Timestamp::MAX]);
    let terms: Vec<(&(String, Timestamp), Timestamp)> = terms.iter().zip(next).collect();
    let mut timed = Vec::new();
    for Sent { pid, entry } in writes {
        let mut led = terms
            .iter()
            .filter(|((identity, acquired), _)| pid_of_term(identity) == Some(*pid) && *acquired <= entry.at);
        let Some(((identity, _), end)) = led.next_back() else {
            return Err(format!("{pid} never led before {entry:?}; the terms: {terms:?}"));
        };
        // A write that was on the way when the next leader began counts as one of before.
        let is_late = entry.at > *end && entry.at.duration_since(*end) <= late;
        let began = if is_late { *end } else { entry.at };
        timed.push(TimedRequest { key: identity.clone(), began, ended: entry.at + entry.took });
    }
    Ok(timed)
}

/// When a maintenance allowed evictions.
#[derive(Debug, Clone)]
struct Times {
    #[expect(dead_code, reason = "shown in a violation")]
    name: String,
    created: Timestamp,
    gone: Timestamp,
    /// It was suspended, and its status said so.
    suspended: Vec<(Timestamp, Timestamp)>,
}

impl Times {
    fn allows(&self, at: Timestamp, late: SignedDuration) -> bool {
        let lives = self.created <= at && at <= self.gone.saturating_add(late).unwrap_or(Timestamp::MAX);
        let rests = |(from, to): &(Timestamp, Timestamp)| *from + SUSPENSION_LATENESS + late < at && at < *to;
        lives && !self.suspended.iter().any(rests)
    }
}

/// The maintenances of each node.
fn times_of_maintenances(seen: &Seen, resumed: &[Resumed]) -> HashMap<String, Vec<Times>> {
    let mut all: HashMap<String, Vec<Times>> = HashMap::new();
    for versions in seen.maintenances.all() {
        let Some(first) = versions.iter().find_map(|version| version.object.as_ref()) else { continue };
        let created = first.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |at| at.0);
        let gone =
            versions.iter().find(|version| version.object.is_none()).map_or(Timestamp::MAX, |last| last.at);
        let name = first.name_any();
        let suspended = suspensions(versions, &name, resumed);
        all.entry(first.spec.node_name.clone()).or_default().push(Times { name, created, gone, suspended });
    }
    all
}

/// From each status that says that the maintenance is suspended to the request that ended it.
fn suspensions(
    versions: &[Version<NodeMaintenance>],
    name: &str,
    resumed: &[Resumed],
) -> Vec<(Timestamp, Timestamp)> {
    let mut all: Vec<(Timestamp, Timestamp)> = Vec::new();
    for version in versions {
        let Some(maintenance) = &version.object else { continue };
        let is_reported =
            maintenance.status.as_ref().is_some_and(|status| Suspension::in_status(status).is_some());
        let is_known = all.last().is_some_and(|(_, to)| version.at < *to);
        if maintenance.spec.suspend && is_reported && !is_known {
            let ends = resumed.iter().filter(|one| one.name == name && one.answered >= version.at);
            let to = ends.map(|one| one.sent).min().unwrap_or(Timestamp::MAX);
            all.push((version.at, to));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn write(pid: u32, second: i64) -> Sent {
        Sent {
            pid,
            entry: Entry { at: at(second), verb: "patch", resource: "nodes".into(), ..Entry::default() },
        }
    }

    #[test]
    fn a_write_counts_in_the_term_of_its_replica() {
        let terms = [("h-1_5", 5), ("h-2_10", 10), ("h-1_20", 20)]
            .map(|(name, second)| (name.to_owned(), at(second)));
        let check = |writes: &[Sent], late: i64| {
            let late = SignedDuration::from_secs(late);
            in_terms(writes, &terms, late).map_err(drop).and_then(|writes| one_writer(&writes).map_err(drop))
        };
        assert_eq!(check(&[write(1, 6), write(2, 11), write(1, 21)], 0), Ok(()));
        assert_eq!(check(&[write(2, 6)], 0), Err(()), "it did not lead yet");
        assert_eq!(check(&[write(1, 6), write(2, 11), write(1, 12)], 0), Err(()), "its term was over");
        assert_eq!(check(&[write(1, 6), write(2, 11), write(1, 12)], 3), Ok(()), "it was on its way");
        assert_eq!(check(&[write(1, 6), write(2, 11), write(1, 16)], 3), Err(()));
    }

    #[test]
    fn audit_events_become_entries() {
        let event = json!({
            "verb": "create", "userAgent": "nm-reconciler/0.1.0 (host-77)", "user": {"username": "u"},
            "objectRef": {"resource": "pods", "namespace": "n", "name": "p", "subresource": "eviction", "apiVersion": "v1"},
            "responseStatus": {"code": 201},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z", "stageTimestamp": "2026-01-01T00:00:01.500000Z",
        });
        let entry = audit_entry(&event).unwrap();
        assert_eq!(
            (entry.code, entry.took.as_millis(), entry.subresource.as_str()),
            (201, 1_500, "eviction")
        );
        assert_eq!(writes(vec![entry])[0].pid, 77);
        assert!(audit_entry(&json!({"verb": "watch"})).is_none());
    }
}
