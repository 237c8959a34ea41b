//! Whether this replica is ready, as the sum of named checks that its parts keep.
//!
//! A part that others rely on adds a [`Check`] when it begins and says when it holds; a check that is dropped is no
//! longer asked. So a replica that stands by is ready as soon as it would notice that nobody leads: it serves, and what
//! a leader watches is none of its business. One that leads is ready once its watches know the cluster. A check is not
//! forgotten where its part broke off: from then on it fails, until another part of the name begins.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use jiff::Timestamp;

/// All checks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readiness(Arc<Mutex<Checks>>);

#[derive(Debug, Default)]
struct Checks {
    all: Vec<Weak<Entry>>,
    /// Those whose part broke off, which nobody else keeps.
    broken: Vec<Arc<Entry>>,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    state: Mutex<State>,
}

/// What a part said of itself.
#[derive(Debug)]
enum State {
    Holds,
    /// It holds until then, and from then on fails for this reason.
    HoldsUntil(Timestamp, String),
    Fails(String),
}

impl State {
    fn at(&self, now: Timestamp) -> Result<(), &str> {
        match self {
            Self::Fails(why) => Err(why),
            Self::HoldsUntil(until, why) if *until <= now => Err(why),
            Self::Holds | Self::HoldsUntil(..) => Ok(()),
        }
    }
}

impl Readiness {
    /// Adds a check, which does not hold yet.
    pub(crate) fn check(&self, name: &'static str) -> Check {
        let entry = Arc::new(Entry { name, state: Mutex::new(State::Fails("not yet".to_owned())) });
        let mut checks = self.lock();
        checks.broken.retain(|broken| broken.name != name);
        checks.all.push(Arc::downgrade(&entry));
        drop(checks);
        Check { entry, readiness: self.clone() }
    }

    /// Adds a check that fails because of `why`, and goes on failing.
    pub(crate) fn broke_off(&self, name: &'static str, why: &str) {
        let check = self.check(name);
        check.fail(why);
        self.keep(&check.entry);
    }

    /// A line for each check, in the form of the API server's own `/readyz?verbose`.
    ///
    /// # Errors
    /// The same lines, where a check does not hold.
    pub(crate) fn report(&self) -> Result<String, String> {
        self.report_at(Timestamp::now())
    }

    fn report_at(&self, now: Timestamp) -> Result<String, String> {
        let mut entries = self.entries();
        entries.sort_by_key(|entry| entry.name);
        let (mut lines, mut ready) = (String::new(), true);
        for entry in entries {
            let state = entry.state.lock().unwrap_or_else(PoisonError::into_inner);
            let state = state.at(now);
            ready &= state.is_ok();
            // Writing to a string cannot fail.
            let _ = match state {
                Ok(()) => writeln!(lines, "[+]{} ok", entry.name),
                Err(why) => writeln!(lines, "[-]{} failed: {why}", entry.name),
            };
        }
        if ready { Ok(lines + "readyz check passed\n") } else { Err(lines + "readyz check failed\n") }
    }

    /// The checks that are kept. The others are forgotten.
    fn entries(&self) -> Vec<Arc<Entry>> {
        let mut checks = self.lock();
        let kept: Vec<_> = checks.all.iter().filter_map(Weak::upgrade).collect();
        checks.all = kept.iter().map(Arc::downgrade).collect();
        kept
    }

    fn keep(&self, entry: &Arc<Entry>) {
        self.lock().broken.push(entry.clone());
    }

    fn lock(&self) -> MutexGuard<'_, Checks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One part's word on whether it is ready, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Check {
    entry: Arc<Entry>,
    readiness: Readiness,
}

impl Check {
    /// It is ready.
    pub(crate) fn pass(&self) {
        self.set(State::Holds);
    }

    /// It is ready until then, and from then on not, because of `why`.
    pub(crate) fn pass_until(&self, until: Timestamp, why: &str) {
        self.set(State::HoldsUntil(until, why.to_owned()));
    }

    /// It is not, because of `why`: a clause for a person, without what an error may carry.
    pub(crate) fn fail(&self, why: &str) {
        self.set(State::Fails(why.to_owned()));
    }

    fn set(&self, state: State) {
        *self.entry.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("what keeps this check panicked");
            self.readiness.keep(&self.entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_every_check_that_is_kept_holds() {
        let readiness = Readiness::default();
        assert_eq!(readiness.report(), Ok("readyz check passed\n".to_owned()));
        let (nodes, webhook) = (readiness.check("nodes"), readiness.check("webhook"));
        nodes.pass();
        webhook.fail("no certificate");
        let lines = "[+]nodes ok\n[-]webhook failed: no certificate\nreadyz check failed\n";
        assert_eq!(readiness.report(), Err(lines.to_owned()));
        drop(webhook);
        assert_eq!(readiness.report(), Ok("[+]nodes ok\nreadyz check passed\n".to_owned()));
    }

    #[test]
    fn what_holds_for_a_time_fails_once_that_is_over() {
        let readiness = Readiness::default();
        let webhook = readiness.check("webhook");
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        webhook.pass_until(at(10), "the certificate has expired");
        assert_eq!(readiness.report_at(at(9)), Ok("[+]webhook ok\nreadyz check passed\n".to_owned()));
        let failed = "[-]webhook failed: the certificate has expired\nreadyz check failed\n";
        assert_eq!(readiness.report_at(at(10)), Err(failed.to_owned()));
        webhook.pass_until(at(20), "the certificate has expired");
        assert!(readiness.report_at(at(10)).is_ok());
    }

    #[tokio::test]
    async fn a_check_whose_part_panics_fails_until_another_part_of_the_name_begins() {
        let readiness = Readiness::default();
        let nodes = readiness.check("nodes");
        nodes.pass();
        let part = async move {
            nodes.pass();
            panic!("the part of {nodes:?}");
        };
        let part: tokio::task::JoinHandle<()> = tokio::spawn(part);
        assert!(part.await.unwrap_err().is_panic());
        let failed = "[-]nodes failed: what keeps this check panicked\nreadyz check failed\n";
        assert_eq!(readiness.report(), Err(failed.to_owned()));
        assert_eq!(readiness.report(), Err(failed.to_owned()), "also when asked again");
        readiness.check("nodes").pass();
        assert_eq!(readiness.report(), Ok("readyz check passed\n".to_owned()));
        readiness.broke_off("leader-tasks", "the evictor panicked");
        let failed = "[-]leader-tasks failed: the evictor panicked\nreadyz check failed\n";
        assert_eq!(readiness.report(), Err(failed.to_owned()));
    }

    #[test]
    fn a_check_does_not_hold_before_it_says_so() {
        let readiness = Readiness::default();
        let _webhook = readiness.check("webhook");
        assert_eq!(readiness.report(), Err("[-]webhook failed: not yet\nreadyz check failed\n".to_owned()));
    }
}
