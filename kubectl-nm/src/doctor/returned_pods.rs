//! Pods that were put back on nodes in maintenance: which workloads tolerate the cordon, and what to change in them.

use std::collections::BTreeSet;

use nm_core::explain::returned_pods::{ADVICE, edit, workload};
use nm_core::maintenance::status;
use nm_core::terminal::text::{counted, first_names};
use nm_shared::GroupedMaintenance;

use crate::doctor::finding::{Fetched, Finding, read, warn};

/// The workloads whose pods returned; none if no pod did, or if the maintenances cannot be read, which other checks report.
pub(crate) fn finding(maintenances: &Fetched<Vec<GroupedMaintenance>>) -> Option<Fetched<Finding>> {
    let maintenances = read(maintenances).ok()?;
    let returned = || maintenances.iter().flat_map(|object| status(object).returned_pods.iter().flatten());
    let workloads: BTreeSet<String> =
        returned().map(|pod| format!("{} in {}", workload(pod), pod.namespace)).collect();
    let first = returned().next()?;
    let names: Vec<String> = workloads.into_iter().collect();
    let what = format!(
        "{} returned to nodes in maintenance, because their workloads tolerate the cordon: {}",
        counted(returned().count(), "pod"),
        first_names(&names)
    );
    Some(warn(what, format!("{ADVICE}: `{}`", edit("kubectl", first))))
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::with_status;
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Unavailable;

    #[test]
    fn the_workloads_whose_pods_came_back_are_named_once() {
        let pod = |name: &str| {
            json!({"namespace": "kube-system", "name": name, "since": "2026-01-02T03:04:05Z",
                "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cilium-operator"}})
        };
        let object = |pods: serde_json::Value| GroupedMaintenance {
            group: nm_shared::Group::Medik8s,
            maintenance: with_status("n1", json!({"phase": "Succeeded", "returnedPods": pods})),
        };
        let found = Ok(vec![object(json!([pod("a"), pod("b")])), object(json!(null))]);
        let finding = finding(&found).unwrap().unwrap();
        assert!(finding.message.starts_with("2 pods returned"), "{finding:?}");
        assert!(finding.message.ends_with(": deploy/cilium-operator in kube-system"), "{finding:?}");
        let remedy = finding.remedy.unwrap();
        assert!(remedy.ends_with("`kubectl -n kube-system edit deploy/cilium-operator`"), "{remedy}");
        assert_eq!(super::finding(&Ok(vec![object(json!([]))])), None);
        assert_eq!(super::finding(&Err(Unavailable("no".into()))), None);
    }
}
