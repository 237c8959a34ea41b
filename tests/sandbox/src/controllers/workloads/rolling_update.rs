//! A rolling update: how many pods the new and the old `ReplicaSet`s of a Deployment may have.
//!
//! Source: kubernetes `pkg/controller/deployment/rolling.go` and `util/deployment_util.go`, v1.36. Proportional scaling in
//! the middle of an update is left out: the new set takes what a larger Deployment adds.

use serde_json::Value;

/// A `ReplicaSet` as far as a rolling update reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetSize {
    /// `spec.replicas`.
    pub(crate) wanted: usize,
    /// `status.availableReplicas`.
    pub(crate) available: usize,
}

/// What a Deployment allows during an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// `spec.replicas`.
    pub(crate) replicas: usize,
    /// How many pods there may be beyond that.
    pub(crate) surge: usize,
    /// How many of them may be unavailable.
    pub(crate) unavailable: usize,
}

impl Limits {
    /// The limits of a Deployment: a surge is rounded up, and what may be unavailable is rounded down.
    pub(crate) fn of(deployment: &Value, replicas: usize) -> Self {
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let surge = resolve(&rolling["maxSurge"], replicas, true);
        let unavailable = resolve(&rolling["maxUnavailable"], replicas, false);
        // An update has to be able to proceed.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable.min(replicas) };
        Self { replicas, surge, unavailable }
    }

    fn min_available(self) -> usize {
        self.replicas.saturating_sub(self.unavailable)
    }
}

/// A number, or a percentage of `replicas`.
fn resolve(value: &Value, replicas: usize, round_up: bool) -> usize {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<usize>().ok());
    let share = percent.map(|percent| percent * replicas);
    number.or(share.map(|share| if round_up { share.div_ceil(100) } else { share / 100 })).unwrap_or(0)
}

/// The next sizes of the new set and of the old ones, which are given from the oldest to the youngest.
pub(crate) fn next_sizes(limits: Limits, new: SetSize, old: &[SetSize]) -> (usize, Vec<usize>) {
    let unchanged: Vec<usize> = old.iter().map(|set| set.wanted).collect();
    let old_wanted: usize = unchanged.iter().sum();
    let grown = if new.wanted >= limits.replicas {
        limits.replicas
    } else {
        let free = (limits.replicas + limits.surge).saturating_sub(old_wanted + new.wanted);
        new.wanted + free.min(limits.replicas - new.wanted)
    };
    if grown != new.wanted {
        return (grown, unchanged);
    }
    let not_yet_available = new.wanted.saturating_sub(new.available);
    let removable = (old_wanted + new.wanted).saturating_sub(limits.min_available() + not_yet_available);
    if old_wanted == 0 || removable == 0 {
        return (grown, unchanged);
    }
    // Pods that are not available go first.
    let mut left = removable;
    let mut sizes = Vec::with_capacity(old.len());
    for set in old {
        let unhealthy = set.wanted.saturating_sub(set.available).min(left);
        left -= unhealthy;
        sizes.push(set.wanted - unhealthy);
    }
    let available: usize = new.available + old.iter().map(|set| set.available).sum::<usize>();
    let mut left = available.saturating_sub(limits.min_available());
    for size in &mut sizes {
        let fewer = (*size).min(left);
        left -= fewer;
        *size -= fewer;
    }
    (grown, sizes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "one-line cases")]
    fn check(
        strategy: (Value, Value),
        replicas: usize,
        new: (usize, usize),
        old: &[(usize, usize)],
        expected: (usize, &[usize]),
    ) {
        let rolling = json!({"maxSurge": strategy.0, "maxUnavailable": strategy.1});
        let deployment = json!({"spec": {"strategy": {"rollingUpdate": rolling}}});
        let size = |(wanted, available)| SetSize { wanted, available };
        let old: Vec<SetSize> = old.iter().map(|set| size(*set)).collect();
        let (grown, sizes) = next_sizes(Limits::of(&deployment, replicas), size(new), &old);
        assert_eq!((grown, sizes.as_slice()), expected, "{deployment} {new:?} {old:?}");
    }

    #[test]
    fn one_pod_is_replaced_before_it_goes_by_default() {
        let usual = || (json!("25%"), json!("25%"));
        check(usual(), 1, (0, 0), &[(1, 1)], (1, &[1]));
        check(usual(), 1, (1, 0), &[(1, 1)], (1, &[1]));
        check(usual(), 1, (1, 1), &[(1, 1)], (1, &[0]));
    }

    #[test]
    fn limits_are_numbers_or_percentages() {
        // Of four, one may be missing and there may be one more.
        check((json!("25%"), json!("25%")), 4, (0, 0), &[(4, 4)], (1, &[4]));
        check((json!("25%"), json!("25%")), 4, (1, 0), &[(4, 4)], (1, &[3]));
        check((json!(0), json!(2)), 4, (0, 0), &[(4, 4)], (0, &[2]));
        check((json!(4), json!(0)), 4, (0, 0), &[(4, 4)], (4, &[4]));
        // With neither, one is taken first.
        check((json!(0), json!(0)), 1, (0, 0), &[(1, 1)], (0, &[0]));
    }

    #[test]
    fn old_pods_that_are_not_available_go_first() {
        check((json!(1), json!(0)), 3, (1, 1), &[(2, 2), (1, 0)], (1, &[2, 0]));
    }
}
