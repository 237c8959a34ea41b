//! Whether this replica is ready, as the sum of named checks.
//!
//! A component adds a [`ReadinessCheck`] when it starts and sets its state; a dropped check no longer counts. A standby
//! replica is therefore ready as soon as it watches the leader's lease, and a leader once its watches know the cluster. A
//! check whose component panicked is kept and fails until another component adds a check of that name.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// All checks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readiness(Arc<Mutex<Checks>>);

#[derive(Debug, Default)]
struct Checks {
    added: u64,
    /// By name: the number of the component that added it last, and its state.
    by_name: BTreeMap<&'static str, (u64, CheckState)>,
}

#[derive(Debug)]
enum CheckState {
    Passes,
    /// Passes until this time and then fails for this reason.
    PassesUntil(Timestamp, String),
    Fails(String),
}

impl CheckState {
    /// Why it fails, if it does.
    fn failure_at(&self, now: Timestamp) -> Option<&str> {
        match self {
            Self::Fails(why) => Some(why),
            Self::PassesUntil(until, why) if *until <= now => Some(why),
            Self::Passes | Self::PassesUntil(..) => None,
        }
    }
}

/// The state of all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadinessReport {
    /// Whether all of them pass.
    pub(crate) is_ready: bool,
    /// One line per check, in the form of the API server's `/readyz?verbose`.
    pub(crate) lines: String,
}

impl Readiness {
    /// Adds a check, which fails until it is set. It replaces an earlier one of that name.
    pub(crate) fn check(&self, name: &'static str) -> ReadinessCheck {
        let mut checks = self.lock();
        checks.added += 1;
        let number = checks.added;
        checks.by_name.insert(name, (number, CheckState::Fails("not yet".to_owned())));
        ReadinessCheck { name, number, readiness: self.clone() }
    }

    /// Adds a check that keeps failing because of `why`.
    pub(crate) fn add_failed(&self, name: &'static str, why: &str) {
        self.lock().by_name.insert(name, (0, CheckState::Fails(why.to_owned())));
    }

    pub(crate) fn report(&self) -> ReadinessReport {
        self.report_at(Timestamp::now())
    }

    fn report_at(&self, now: Timestamp) -> ReadinessReport {
        let (mut lines, mut is_ready) = (String::new(), true);
        for (name, (_, state)) in &self.lock().by_name {
            let failure = state.failure_at(now);
            is_ready &= failure.is_none();
            // Writing to a string cannot fail.
            let _ = match failure {
                None => writeln!(lines, "[+]{name} ok"),
                Some(why) => writeln!(lines, "[-]{name} failed: {why}"),
            };
        }
        lines += if is_ready { "readyz check passed\n" } else { "readyz check failed\n" };
        ReadinessReport { is_ready, lines }
    }

    fn lock(&self) -> MutexGuard<'_, Checks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The check of one component, which counts until this is dropped.
#[derive(Debug)]
pub(crate) struct ReadinessCheck {
    name: &'static str,
    number: u64,
    readiness: Readiness,
}

impl ReadinessCheck {
    pub(crate) fn pass(&self) {
        self.set(CheckState::Passes);
    }

    /// It passes until a time, and then fails because of `why`.
    pub(crate) fn pass_until(&self, until: Timestamp, why: &str) {
        self.set(CheckState::PassesUntil(until, why.to_owned()));
    }

    /// It fails because of `why`. `/readyz` is public, so this must not contain an error's details.
    pub(crate) fn fail(&self, why: &str) {
        self.set(CheckState::Fails(why.to_owned()));
    }

    fn set(&self, state: CheckState) {
        if let Some((number, current)) = self.readiness.lock().by_name.get_mut(self.name)
            && *number == self.number
        {
            *current = state;
        }
    }
}

impl Drop for ReadinessCheck {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return self.fail("the component of this check panicked");
        }
        let mut checks = self.readiness.lock();
        if checks.by_name.get(self.name).is_some_and(|(number, _)| *number == self.number) {
            checks.by_name.remove(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(is_ready: bool, lines: &str) -> ReadinessReport {
        ReadinessReport { is_ready, lines: lines.to_owned() }
    }

    #[test]
    fn a_replica_is_ready_when_every_check_that_is_kept_passes() {
        let readiness = Readiness::default();
        assert_eq!(readiness.report(), report(true, "readyz check passed\n"));
        let (nodes, webhook) = (readiness.check("nodes"), readiness.check("webhook"));
        nodes.pass();
        webhook.fail("no certificate");
        let lines = "[+]nodes ok\n[-]webhook failed: no certificate\nreadyz check failed\n";
        assert_eq!(readiness.report(), report(false, lines));
        drop(webhook);
        assert_eq!(readiness.report(), report(true, "[+]nodes ok\nreadyz check passed\n"));
    }

    #[test]
    fn a_check_that_passes_until_a_time_fails_afterwards() {
        let readiness = Readiness::default();
        let webhook = readiness.check("webhook");
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        webhook.pass_until(at(10), "the certificate has expired");
        assert_eq!(readiness.report_at(at(9)), report(true, "[+]webhook ok\nreadyz check passed\n"));
        let failed = "[-]webhook failed: the certificate has expired\nreadyz check failed\n";
        assert_eq!(readiness.report_at(at(10)), report(false, failed));
        webhook.pass_until(at(20), "the certificate has expired");
        assert!(readiness.report_at(at(10)).is_ready);
    }

    #[tokio::test]
    async fn a_check_whose_component_panicked_fails_until_another_component_adds_it() {
        let readiness = Readiness::default();
        let nodes = readiness.check("nodes");
        nodes.pass();
        let component = async move {
            nodes.pass();
            panic!("the component of {nodes:?}");
        };
        let component: tokio::task::JoinHandle<()> = tokio::spawn(component);
        assert!(component.await.unwrap_err().is_panic());
        let failed =
            report(false, "[-]nodes failed: the component of this check panicked\nreadyz check failed\n");
        assert_eq!(readiness.report(), failed);
        assert_eq!(readiness.report(), failed, "the second report is the same");
        readiness.check("nodes").pass();
        assert_eq!(readiness.report(), report(true, "readyz check passed\n"));
        readiness.add_failed("leader-tasks", "the evictor panicked");
        let failed = "[-]leader-tasks failed: the evictor panicked\nreadyz check failed\n";
        assert_eq!(readiness.report(), report(false, failed));
    }

    #[test]
    fn a_new_check_fails() {
        let readiness = Readiness::default();
        let _webhook = readiness.check("webhook");
        assert_eq!(readiness.report(), report(false, "[-]webhook failed: not yet\nreadyz check failed\n"));
    }
}
