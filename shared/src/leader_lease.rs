//! The lease by which one of several reconcilers leads, and what it says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

/// The name of the lease, in the program's own namespace.
pub const NAME: &str = "nm-reconciler";

/// Who leads, as the lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenure {
    /// Nobody: the lease was given back, or there is none.
    Vacant,
    /// Nobody any more: whoever did has not renewed in time.
    Lapsed,
    /// Somebody.
    Held {
        /// By its own name.
        by: String,
        /// When it last renewed, by its own clock.
        renewed: Timestamp,
        /// Until when, unless it renews.
        until: Timestamp,
    },
}

/// What the lease says at this time.
pub fn tenure(lease: Option<&Lease>, now: Timestamp) -> Tenure {
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else { return Tenure::Vacant };
    let Some(by) = spec.holder_identity.clone() else { return Tenure::Vacant };
    let (Some(renewed), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds) else {
        return Tenure::Lapsed;
    };
    let until = renewed.0.saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MAX);
    if by.is_empty() || until <= now {
        return Tenure::Lapsed;
    }
    Tenure::Held { by, renewed: renewed.0, until }
}

/// The merge patch that makes the lease vacant. It carries the resourceVersion: if someone was faster, the API server
/// answers 409, and nobody's tenure is ended by what was known of another's.
pub fn vacate(lease: &Lease) -> Value {
    json!({
        "metadata": {"resourceVersion": lease.metadata.resource_version},
        "spec": {"holderIdentity": null, "acquireTime": null, "renewTime": null, "leaseDurationSeconds": null},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(spec: &Value) -> Lease {
        serde_json::from_value(json!({"metadata": {"name": NAME, "resourceVersion": "7"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn a_lease_is_held_until_its_duration_is_over() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let held = |by: &str| Tenure::Held { by: by.to_owned(), renewed: at(0), until: at(15) };
        let renewed = at(0).to_string();
        let of = |holder: Value| json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15});
        for (spec, after, expected) in [
            (of(json!("a")), 0, held("a")),
            (of(json!("a")), 14, held("a")),
            (of(json!("a")), 15, Tenure::Lapsed),
            // client-go gives leases back like this.
            (of(json!("")), 0, Tenure::Lapsed),
            (of(Value::Null), 0, Tenure::Vacant),
            (json!({"leaseTransitions": 3}), 0, Tenure::Vacant),
            (json!({"holderIdentity": "a"}), 0, Tenure::Lapsed),
            (Value::Null, 0, Tenure::Vacant),
        ] {
            assert_eq!(tenure(Some(&lease(&spec)), at(after)), expected, "{spec} after {after} s");
        }
        assert_eq!(tenure(None, at(0)), Tenure::Vacant);
    }

    #[test]
    fn a_lease_is_vacated_only_as_it_was_seen() {
        assert_eq!(vacate(&lease(&json!({})))["metadata"]["resourceVersion"], "7");
    }
}
