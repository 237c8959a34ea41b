//! The priority of a pod: that of its class, or of the default class.

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{PODS, PRIORITY_CLASSES};
use crate::cluster::store::{Key, Object, State};
use crate::model::pod;
use crate::model::status_error::StatusError;

/// Sets the priority of a new pod.
///
/// # Errors
/// 403 for an unknown class, and for a pod whose priority differs from its class.
pub(crate) fn resolve(state: &State, pod: &mut Value) -> Result<(), StatusError> {
    let name = pod["spec"]["priorityClassName"].as_str().filter(|name| !name.is_empty());
    let class = match name {
        None => usual(state),
        Some(name) => {
            let class = state.get(&PRIORITY_CLASSES, &Key::cluster(name));
            Some(
                class
                    .ok_or_else(|| forbidden(pod, &format!("no PriorityClass with name {name} was found")))?,
            )
        }
    };
    let priority = class.as_ref().and_then(|class| class["value"].as_i64()).unwrap_or_default();
    let said = pod["spec"]["priority"].as_i64().filter(|said| *said != priority);
    if let Some(said) = said {
        return Err(forbidden(
            pod,
            &format!(
                "the integer value of priority ({said}) must not be provided in pod spec; priority admission \
                 controller computed {priority} from the given PriorityClass name"
            ),
        ));
    }
    let policy = class.as_ref().and_then(|class| class["preemptionPolicy"].as_str());
    let said = pod["spec"]["preemptionPolicy"].as_str();
    if let (Some(policy), Some(said)) = (policy, said)
        && policy != said
    {
        return Err(forbidden(
            pod,
            &format!(
                "the string value of PreemptionPolicy ({said}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
            ),
        ));
    }
    let spec = &mut pod["spec"];
    spec["priority"] = json!(priority);
    if let Some(policy) = policy {
        spec["preemptionPolicy"] = json!(policy);
    }
    if let Some(class) = &class {
        spec["priorityClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

/// The default class: of several, the one with the lowest priority.
fn usual(state: &State) -> Option<Object> {
    let classes = state.list(&PRIORITY_CLASSES, None).filter(|class| class["globalDefault"] == true);
    classes.min_by_key(|class| class["value"].as_i64())
}

fn forbidden(pod: &Value, because: &str) -> StatusError {
    StatusError::forbidden(&PODS.group, &PODS.plural, pod::name(pod), because)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::cluster::registry;
    use crate::cluster::registry::Effect;
    use crate::cluster::store::Collection;
    use crate::model::clock::Clock;
    use crate::workload;

    #[test]
    fn a_pod_has_the_priority_of_its_class_and_may_say_no_other() {
        let cluster = Cluster::new(Clock::start());
        workload::seed_nodes(&cluster, 0).unwrap();
        let create = |collection: &Collection, object: Value| {
            let (resource, now) = (cluster.catalog.of(collection).unwrap(), cluster.clock.now());
            cluster.store.write(|state| registry::create(state, &resource, object, now, Effect::Real))
        };
        let class = |name: &str, value: i64, usual: bool| {
            let class = json!({"metadata": {"name": name}, "value": value, "globalDefault": usual,
                "preemptionPolicy": "Never"});
            create(&PRIORITY_CLASSES, class).unwrap();
        };
        let refused = |because: &str| format!("pods \"p\" is forbidden: {because}");
        let pod = |spec: Value| {
            let pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec});
            let resource = cluster.catalog.of(&PODS).unwrap();
            let now = cluster.clock.now();
            let made =
                cluster.store.write(|state| registry::create(state, &resource, pod, now, Effect::DryRun));
            made.map(|pod| {
                let spec = &pod["spec"];
                json!([spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]])
            })
            .map_err(|refusal| refusal.message)
        };
        let preempts = "PreemptLowerPriority";
        assert_eq!(pod(json!({})), Ok(json!([null, 0, preempts])));
        class("low", -10, false);
        let critical = json!(["system-node-critical", 2_000_001_000, preempts]);
        assert_eq!(pod(json!({"priorityClassName": "system-node-critical"})), Ok(critical));
        assert_eq!(pod(json!({"priorityClassName": "low"})), Ok(json!(["low", -10, "Never"])));
        assert_eq!(
            pod(json!({"priorityClassName": "low", "priority": -10})),
            Ok(json!(["low", -10, "Never"]))
        );
        let missing = refused("no PriorityClass with name high was found");
        assert_eq!(pod(json!({"priorityClassName": "high"})), Err(missing));
        let another = |said: i64, found: i64| {
            refused(&format!(
                "the integer value of priority ({said}) must not be provided in pod spec; priority admission \
                 controller computed {found} from the given PriorityClass name"
            ))
        };
        assert_eq!(pod(json!({"priorityClassName": "low", "priority": 7})), Err(another(7, -10)));
        assert_eq!(pod(json!({"priority": 7})), Err(another(7, 0)));
        let policy = pod(json!({"priorityClassName": "low", "preemptionPolicy": preempts})).unwrap_err();
        assert!(
            policy.contains("the string value of PreemptionPolicy (PreemptLowerPriority) must not"),
            "{policy}"
        );
        class("usual", 5, true);
        class("more-usual", 3, true);
        assert_eq!(pod(json!({})), Ok(json!(["more-usual", 3, "Never"])));
    }
}
