//! When the webhook's certificate is due, and which step of its renewal is next.
//!
//! A generation is an authority and the one certificate that it signed; its key is forgotten after that, so nothing else
//! can ever be signed by it. Two generations overlap: the next one is made and kept beside the current one, then the API
//! server is told to believe both, and only when it has had time to hear that is the next one served. What came before
//! stays believed until it has run out, for until then some replica may not have heard of the change.
//!
//! Every step is derived from what is kept and from what the API server was told, so any replica can take any step, and
//! one that stops midway leaves nothing that another cannot go on with.

use jiff::{SignedDuration, Timestamp};

/// The API servers hear of a change within this time.
const LONGEST_MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// Every replica answers at a new path within this time, those included that a rollout is about to replace: it is what a
/// Deployment has for a rollout before that counts as failed.
const LONGEST_ROLLOUT: SignedDuration = SignedDuration::from_mins(10);

/// Clocks may be apart by so much.
const LARGEST_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub from: Timestamp,
    /// The last.
    pub until: Timestamp,
}

impl Validity {
    /// That of a certificate made now for so long. It begins a little earlier, for those whose clock is behind.
    pub fn beginning(now: Timestamp, life: SignedDuration) -> Self {
        let skew = LARGEST_SKEW.min(life / 20);
        let end = |time: Result<Timestamp, _>| time.unwrap_or(now);
        Self { from: end(now.checked_sub(skew)), until: end(now.checked_add(life)) }
    }

    fn life(&self) -> SignedDuration {
        self.until.duration_since(self.from)
    }

    /// When the next one is to be made: halfway, so that it is served well before two thirds are over.
    fn renewal(&self) -> Timestamp {
        self.from.saturating_add(self.life() / 2).unwrap_or(self.until)
    }

    /// How long the API servers get to hear of a new authority.
    fn margin(&self) -> SignedDuration {
        LONGEST_MARGIN.min(self.life() / 20)
    }
}

/// An authority and the validity of what it signed, which is its own too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate, in PEM.
    pub pem: String,
    /// For how long it matters.
    pub validity: Validity,
}

/// What is kept. What is damaged counts as not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Generations {
    /// What was served before.
    pub previous: Option<Authority>,
    /// What is served.
    pub current: Option<Authority>,
    /// What will be.
    pub next: Option<Authority>,
}

impl Generations {
    /// Whom the API server is to believe.
    fn bundle(&self, now: Timestamp) -> String {
        let all = [&self.previous, &self.current, &self.next].into_iter().flatten();
        all.filter(|authority| authority.validity.until > now)
            .map(|authority| authority.pem.as_str())
            .collect()
    }
}

/// Whom the API server was told to believe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfiguredTrust {
    /// Nobody is to be told: there is no webhook configuration.
    NotConfigured,
    /// These authorities, in PEM.
    Bundle {
        /// What the configuration says.
        pem: String,
        /// Since when it has been seen to.
        since: Timestamp,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalStep {
    /// There is nothing that could be served: make it.
    Begin,
    /// Make what will be served next, and keep it beside what is.
    Prepare,
    /// Tell the API server to believe these authorities, in PEM.
    UpdateBundle(String),
    /// From now on serve what was prepared.
    Promote,
    /// Nothing, before this time.
    Wait(Timestamp),
}

/// When the API server may be told of a path that the replicas have known since then, while `current` is served. Nobody is
/// asked anywhere before the first authority is told.
pub fn path_due(told: &ConfiguredTrust, known: Timestamp, current: &Validity) -> Timestamp {
    match told {
        ConfiguredTrust::NotConfigured => Timestamp::MIN,
        ConfiguredTrust::Bundle { pem, .. } if pem.is_empty() => Timestamp::MIN,
        ConfiguredTrust::Bundle { .. } => {
            known.saturating_add(LONGEST_ROLLOUT.min(current.life() / 20)).unwrap_or(Timestamp::MAX)
        }
    }
}

/// Which step is next.
pub fn next_step(kept: &Generations, told: &ConfiguredTrust, now: Timestamp) -> RenewalStep {
    let Some(current) = kept.current.as_ref().filter(|current| current.validity.until > now) else {
        return RenewalStep::Begin;
    };
    let bundle = kept.bundle(now);
    let since = match told {
        ConfiguredTrust::Bundle { pem, .. } if *pem != bundle => return RenewalStep::UpdateBundle(bundle),
        ConfiguredTrust::Bundle { since, .. } => *since,
        // Nobody has to hear of anything.
        ConfiguredTrust::NotConfigured => Timestamp::MIN,
    };
    let Some(next) = kept.next.as_ref().filter(|next| next.validity.until > now) else {
        let renewal = current.validity.renewal();
        if renewal <= now {
            return RenewalStep::Prepare;
        }
        let previous = kept.previous.as_ref().map(|previous| previous.validity.until);
        return RenewalStep::Wait(
            previous.filter(|until| *until > now).map_or(renewal, |until| until.min(renewal)),
        );
    };
    let heard = since.saturating_add(next.validity.margin()).unwrap_or(now);
    if heard <= now { RenewalStep::Promote } else { RenewalStep::Wait(heard) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: i64 = 1200;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    /// Made at `second`, to be valid for as long as all.
    fn authority(pem: &str, second: i64) -> Authority {
        let validity = Validity::beginning(at(second), SignedDuration::from_secs(LIFE));
        Authority { pem: pem.to_owned(), validity }
    }

    fn told(pem: &str, since: i64) -> ConfiguredTrust {
        ConfiguredTrust::Bundle { pem: pem.to_owned(), since: at(since) }
    }

    #[test]
    fn a_renewal_goes_step_by_step() {
        let (a, b) = (Some(authority("A", 0)), Some(authority("B", 600)));
        let kept = |previous: &Option<Authority>, current: &Option<Authority>, next: &Option<Authority>| {
            Generations { previous: previous.clone(), current: current.clone(), next: next.clone() }
        };
        let none = None;
        let alone = kept(&none, &a, &none);
        let both = kept(&none, &a, &b);
        let after = kept(&a, &b, &none);
        for (what, kept, told, now, expected) in [
            ("nothing is there", &Generations::default(), told("", 0), 0, RenewalStep::Begin),
            ("all is over", &alone, told("A", 0), LIFE, RenewalStep::Begin),
            ("nobody knows it", &alone, told("", 0), 1, RenewalStep::UpdateBundle("A".to_owned())),
            ("it is not due", &alone, told("A", 0), 569, RenewalStep::Wait(at(570))),
            ("it is due halfway", &alone, told("A", 0), 570, RenewalStep::Prepare),
            ("the next is not known", &both, told("A", 0), 601, RenewalStep::UpdateBundle("AB".to_owned())),
            ("it may not be heard of yet", &both, told("AB", 602), 602, RenewalStep::Wait(at(632))),
            ("it is heard of", &both, told("AB", 602), 632, RenewalStep::Promote),
            ("nobody has to hear", &both, ConfiguredTrust::NotConfigured, 601, RenewalStep::Promote),
            ("the previous may still be served", &after, told("AB", 602), 640, RenewalStep::Wait(at(1170))),
            ("it is due again", &after, told("AB", 602), 1170, RenewalStep::Prepare),
            (
                "the previous has run out",
                &after,
                told("AB", 602),
                LIFE,
                RenewalStep::UpdateBundle("B".to_owned()),
            ),
            ("someone took it away", &after, told("", 700), 701, RenewalStep::UpdateBundle("AB".to_owned())),
            (
                "a next that ran out counts for nothing",
                &kept(&none, &Some(authority("C", 1000)), &b),
                told("C", 0),
                1850,
                RenewalStep::Prepare,
            ),
        ] {
            assert_eq!(next_step(kept, &told, at(now)), expected, "{what}");
        }
    }

    #[test]
    fn what_came_before_is_told_of_when_it_leaves() {
        let kept = Generations {
            previous: Some(authority("A", 0)),
            current: Some(authority("B", 1190)),
            next: None,
        };
        assert_eq!(
            next_step(&kept, &told("AB", 0), at(1195)),
            RenewalStep::Wait(at(LIFE)),
            "before the renewal"
        );
    }

    #[test]
    fn a_path_is_told_at_once_to_those_who_ask_nobody_yet_and_otherwise_when_every_replica_knows_it() {
        let validity = authority("A", 0).validity;
        let long = Validity::beginning(at(0), SignedDuration::from_hours(24));
        for (told, current, expected) in [
            (ConfiguredTrust::NotConfigured, &validity, Timestamp::MIN),
            (told("", 0), &validity, Timestamp::MIN),
            (told("A", 0), &validity, at(7 + 63)),
            (told("A", 0), &long, at(7 + 600)),
        ] {
            assert_eq!(path_due(&told, at(7), current), expected, "{told:?}");
        }
    }

    // As a replica alone would live through it, looking once a second.
    #[test]
    fn a_certificate_is_replaced_before_two_thirds_of_its_life_and_is_always_believed() {
        for life in [10, 60, 3600, 90 * 24 * 3600] {
            let mut kept = Generations::default();
            let (mut pem, mut since, mut made, mut replaced) = (String::new(), at(0), 0, 0);
            let mut fresh = |now| {
                made += 1;
                let validity = Validity::beginning(now, SignedDuration::from_secs(life));
                Some(Authority { pem: format!("{made};"), validity })
            };
            let mut now = at(0);
            while now < at(4 * life) {
                match next_step(&kept, &ConfiguredTrust::Bundle { pem: pem.clone(), since }, now) {
                    RenewalStep::Begin => kept.current = fresh(now),
                    RenewalStep::Prepare => kept.next = fresh(now),
                    RenewalStep::UpdateBundle(bundle) => (pem, since) = (bundle, now),
                    RenewalStep::Promote => {
                        let old = kept.current.take().unwrap();
                        let age = now.duration_since(old.validity.from);
                        assert!(age * 3 <= old.validity.life() * 2, "{life}: {age:?}");
                        kept = Generations { previous: Some(old), current: kept.next.take(), next: None };
                        replaced += 1;
                    }
                    RenewalStep::Wait(until) => {
                        let current = kept.current.as_ref().unwrap();
                        assert!(pem.contains(&current.pem) && current.validity.until > now);
                        if let Some(previous) = kept.previous.as_ref().filter(|old| old.validity.until > now)
                        {
                            assert!(pem.contains(&previous.pem), "{life}: who is behind serves it still");
                        }
                        assert!(until > now);
                        now = until;
                    }
                }
            }
            assert!(replaced >= 6, "{life}: {replaced}");
        }
    }
}
