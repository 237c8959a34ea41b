//! The permissions that drains need because of their settings, and that nm-reconciler does not have: in words.

use nm_shared::{DrainSpec, Grant};
use serde_json::{Value, json};

use crate::terminal::text::{Line, Style};

/// What the settings of a drain need that is not installed by default, of what a drain cannot report beforehand.
pub(super) fn needed(drain: &DrainSpec) -> impl Iterator<Item = Grant> + use<> {
    let deletes = (drain.delete_after_seconds > 0).then_some(Grant::PodDeletion);
    let waits = drain.wait_for_volume_detach.as_ref().map(|_| Grant::VolumeDetach);
    deletes.into_iter().chain(waits)
}

/// `--delete-after has no effect: nm-reconciler has no permission to delete pods; ...`.
pub(super) fn line(grant: Grant) -> Line {
    let effect = match grant {
        Grant::VolumeDetach => "the drain does not complete (--wait-for-volume-detach)",
        _ => "--delete-after has no effect",
    };
    Line::default().with(Style::Bad, effect).and(format!(
        ": nm-reconciler has no permission to {}; `kubectl nm install --grant {grant}` grants it",
        grant.permits()
    ))
}

pub(super) fn document(grant: Grant) -> Value {
    let harm = match grant {
        Grant::VolumeDetach => "VolumeDetachDenied",
        _ => "DeletionDenied",
    };
    json!({"harm": harm})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::harm::{Harm, harms};
    use crate::plan::report::tests::{report, snapshot};
    use crate::plan::text;

    #[test]
    fn a_drain_that_waits_for_volumes_that_may_not_be_read_does_not_complete() {
        let planned = |drain: Value| {
            let mut snapshot = snapshot(&["n1", "n2"], Vec::new());
            snapshot.denied.insert(Grant::VolumeDetach);
            let drain: DrainSpec = serde_json::from_value(drain).unwrap();
            let report = report(&["n1"], Some(&drain), snapshot, &[]);
            let lines: Vec<String> =
                harms(&report, None).iter().map(|harm| harm.line().to_string()).collect();
            let documents: Vec<Value> = harms(&report, None).iter().map(Harm::document).collect();
            (lines, documents, text::lines(&report).last().unwrap().to_string())
        };
        let (lines, documents, verdict) = planned(json!({"waitForVolumeDetach": {}}));
        assert_eq!(
            lines,
            [
                "the drain does not complete (--wait-for-volume-detach): nm-reconciler has no permission to watch \
              volumeattachments and get persistentvolumes; `kubectl nm install --grant volume-detach` grants it"
            ]
        );
        assert_eq!(documents, [json!({"harm": "VolumeDetachDenied"})]);
        assert_eq!(
            verdict,
            "Nothing would block the drain, but it would not complete without the missing permission. Nothing was changed."
        );
        assert_eq!(planned(json!({})).0, [""; 0], "nothing needs it");
    }
}
