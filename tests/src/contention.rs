//! How fast an API server answers evictions under load.

use std::time::Duration;

use kube_sandbox::faults::{Action, Faults, Rule, Target};

/// What an eviction takes of a real API server's time, and how many requests of others compete with the evictions during a
/// drain. `docs/performance.md` has the measurement.
const EVICTION_COST: Duration = Duration::from_micros(8_700);
const BACKGROUND_REQUESTS: u32 = 30;

/// Makes a sandbox answer evictions as slowly as a real API server.
pub fn slow_evictions(faults: &Faults) {
    let contend = Action::Contend { each: EVICTION_COST, background: BACKGROUND_REQUESTS };
    faults.add(Rule::new(Target::any().subresource("eviction"), contend));
}
