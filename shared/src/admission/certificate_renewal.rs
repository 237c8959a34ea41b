//! The renewal of the webhook's certificate: when it is due, and which step is next.
//!
//! A generation is a certificate authority and the only certificate that it signed; the authority's key is discarded after
//! that. Two generations overlap: the next one is created and stored in addition to the current one, then the webhook
//! configuration is updated to trust both, and the next one is served only after the API servers have had time to observe
//! that. The previous one stays trusted until it expires, because some replica may still serve it.
//!
//! Each step is derived from the stored generations and the webhook configuration, so any replica can take any step, and
//! one that stops midway leaves a state from which another can continue.

use jiff::{SignedDuration, Timestamp};

/// The API servers observe a change within this time.
const MAX_PROPAGATION: SignedDuration = SignedDuration::from_secs(30);

/// The maximum difference between clocks.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub from: Timestamp,
    /// The last.
    pub until: Timestamp,
}

impl Validity {
    /// The validity of a certificate that is created now. It begins a little earlier, for clocks that are behind.
    pub fn beginning(now: Timestamp, life: SignedDuration) -> Self {
        let skew = MAX_CLOCK_SKEW.min(life / 20);
        let end = |time: Result<Timestamp, _>| time.unwrap_or(now);
        Self { from: end(now.checked_sub(skew)), until: end(now.checked_add(life)) }
    }

    fn life(&self) -> SignedDuration {
        self.until.duration_since(self.from)
    }

    /// When to create the next one: after half of the lifetime, so that it is served before two thirds of it have passed.
    fn renewal(&self) -> Timestamp {
        self.from.saturating_add(self.life() / 2).unwrap_or(self.until)
    }

    /// The time to wait until the API servers have observed a new authority.
    fn margin(&self) -> SignedDuration {
        MAX_PROPAGATION.min(self.life() / 20)
    }
}

/// A certificate authority. Its validity is also the validity of the certificate that it signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The certificate of the authority, in PEM.
    pub pem: String,
    /// The validity of the authority.
    pub validity: Validity,
}

/// The stored generations. A damaged one counts as missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Generations {
    /// The one that was served before.
    pub previous: Option<Authority>,
    /// The one that is served.
    pub current: Option<Authority>,
    /// The one that will be served.
    pub next: Option<Authority>,
}

impl Generations {
    /// The authorities that the API server is to trust.
    fn bundle(&self, now: Timestamp) -> String {
        let all = [&self.previous, &self.current, &self.next].into_iter().flatten();
        all.filter(|authority| authority.validity.until > now)
            .map(|authority| authority.pem.as_str())
            .collect()
    }
}

/// The authorities that the webhook configuration trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfiguredTrust {
    /// There is no webhook configuration.
    NotConfigured,
    /// A bundle of authorities.
    Bundle {
        /// The bundle, in PEM.
        pem: String,
        /// The time since which it has been observed.
        since: Timestamp,
    },
}

/// A step of the renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalStep {
    /// No generation can be served: create one.
    Begin,
    /// Create the next generation and store it in addition to the current one.
    Prepare,
    /// Write this bundle, in PEM, to the webhook configuration.
    UpdateBundle(String),
    /// Serve the next generation from now on.
    Promote,
    /// Nothing before this time.
    Wait(Timestamp),
}

/// The next step.
pub fn next_step(kept: &Generations, trust: &ConfiguredTrust, now: Timestamp) -> RenewalStep {
    let Some(current) = kept.current.as_ref().filter(|current| current.validity.until > now) else {
        return RenewalStep::Begin;
    };
    let bundle = kept.bundle(now);
    let since = match trust {
        ConfiguredTrust::Bundle { pem, .. } if *pem != bundle => return RenewalStep::UpdateBundle(bundle),
        ConfiguredTrust::Bundle { since, .. } => *since,
        // There is nothing to propagate.
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
    let propagated = since.saturating_add(next.validity.margin()).unwrap_or(now);
    if propagated <= now { RenewalStep::Promote } else { RenewalStep::Wait(propagated) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: i64 = 1200;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    /// Created at `second`, with the lifetime of all.
    fn authority(pem: &str, second: i64) -> Authority {
        let validity = Validity::beginning(at(second), SignedDuration::from_secs(LIFE));
        Authority { pem: pem.to_owned(), validity }
    }

    fn trusted(pem: &str, since: i64) -> ConfiguredTrust {
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
        for (what, kept, trust, now, expected) in [
            ("there is none", &Generations::default(), trusted("", 0), 0, RenewalStep::Begin),
            ("it has expired", &alone, trusted("A", 0), LIFE, RenewalStep::Begin),
            ("it is not trusted", &alone, trusted("", 0), 1, RenewalStep::UpdateBundle("A".to_owned())),
            ("it is not due", &alone, trusted("A", 0), 569, RenewalStep::Wait(at(570))),
            ("it is due halfway", &alone, trusted("A", 0), 570, RenewalStep::Prepare),
            (
                "the next is not trusted",
                &both,
                trusted("A", 0),
                601,
                RenewalStep::UpdateBundle("AB".to_owned()),
            ),
            ("it may not be propagated yet", &both, trusted("AB", 602), 602, RenewalStep::Wait(at(632))),
            ("it is propagated", &both, trusted("AB", 602), 632, RenewalStep::Promote),
            ("there is no configuration", &both, ConfiguredTrust::NotConfigured, 601, RenewalStep::Promote),
            (
                "the previous may still be served",
                &after,
                trusted("AB", 602),
                640,
                RenewalStep::Wait(at(1170)),
            ),
            ("it is due again", &after, trusted("AB", 602), 1170, RenewalStep::Prepare),
            (
                "the previous has run out",
                &after,
                trusted("AB", 602),
                LIFE,
                RenewalStep::UpdateBundle("B".to_owned()),
            ),
            (
                "someone removed the bundle",
                &after,
                trusted("", 700),
                701,
                RenewalStep::UpdateBundle("AB".to_owned()),
            ),
            (
                "an expired next is ignored",
                &kept(&none, &Some(authority("C", 1000)), &b),
                trusted("C", 0),
                1850,
                RenewalStep::Prepare,
            ),
        ] {
            assert_eq!(next_step(kept, &trust, at(now)), expected, "{what}");
        }
    }

    #[test]
    fn the_previous_generation_is_removed_when_it_expires() {
        let kept = Generations {
            previous: Some(authority("A", 0)),
            current: Some(authority("B", 1190)),
            next: None,
        };
        assert_eq!(
            next_step(&kept, &trusted("AB", 0), at(1195)),
            RenewalStep::Wait(at(LIFE)),
            "before the renewal"
        );
    }

    // With a single replica that checks once a second.
    #[test]
    fn a_certificate_is_replaced_before_two_thirds_of_its_lifetime_and_is_always_trusted() {
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
                            assert!(pem.contains(&previous.pem), "{life}: a replica may still serve it");
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
