//! Resource quotas, as far as they count pods.

use serde_json::Value;

use crate::cluster::catalog::resource::{PODS, QUOTAS};
use crate::cluster::store::{Key, State};
use crate::model::pod;
use crate::model::status_error::StatusError;

/// The names by which a quota limits the number of pods.
const LIMITS: [&str; 2] = ["pods", "count/pods"];

/// Checks whether the quotas of a namespace allow one more pod.
///
/// # Errors
/// 403 if one of them does not.
pub(crate) fn admit_pod(state: &State, key: &Key) -> Result<(), StatusError> {
    for quota in state.list(&QUOTAS, Some(&key.namespace)) {
        for limit in LIMITS {
            let Some(hard) = count(&quota["spec"]["hard"][limit]) else { continue };
            let counts = |pod: &Value| limit != "pods" || !pod::is_finished(pod);
            let used = state.list(&PODS, Some(&key.namespace)).filter(|pod| counts(pod)).count();
            if used >= hard {
                let because = format!(
                    "exceeded quota: {}, requested: {limit}=1, used: {limit}={used}, limited: {limit}={hard}",
                    pod::name(&quota)
                );
                return Err(StatusError::forbidden("", "pods", &key.name, &because));
            }
        }
    }
    Ok(())
}

fn count(quantity: &Value) -> Option<usize> {
    let number = quantity.as_u64().and_then(|number| usize::try_from(number).ok());
    number.or_else(|| quantity.as_str()?.parse().ok())
}
