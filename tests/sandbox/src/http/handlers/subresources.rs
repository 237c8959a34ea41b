//! Subresources other than status: evictions, bindings, logs, scale, and `finalize` of namespaces.

use http::Method;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::{NAMESPACES, PODS};
use crate::cluster::registry;
use crate::cluster::registry::{Effect, Part};
use crate::cluster::registry::{binding, eviction};
use crate::cluster::store::State;
use crate::controllers::nodes::kubelet::annotations;
use crate::http::decode::object;
use crate::http::decode::patch_body;
use crate::http::decode::patch_body::PatchBody;
use crate::http::handlers::{read, webhooks, write_checks};
use crate::http::request::call::Call;
use crate::http::request::{delete_options, options};
use crate::http::response::answer;
use crate::http::response::answer::warn;
use crate::http::response::answer::{HandlerResult, not_allowed};
use crate::model::status_error::{FieldError, StatusError};

/// Handles a subresource other than `status`.
pub(crate) async fn answer(cluster: &Cluster, method: &Method, call: &Call) -> HandlerResult {
    let workload = matches!(
        (call.resource.group(), call.resource.plural()),
        ("apps", "deployments" | "replicasets" | "statefulsets") | ("", "replicationcontrollers")
    );
    match (method.as_str(), call.subresource()) {
        ("POST", "eviction") if call.stored.collection == PODS => evict(cluster, call).await,
        ("POST", "binding") if call.stored.collection == PODS => bind(cluster, call).await,
        ("PUT", "finalize") if call.stored.collection == NAMESPACES => finalize(cluster, call).await,
        ("GET", "log") if call.stored.collection == PODS => log(cluster, call),
        ("GET", "scale") if workload => scale(cluster, call),
        ("PUT" | "PATCH", "scale") if workload => set_scale(cluster, method, call).await,
        (_, "eviction" | "binding" | "log") if call.stored.collection == PODS => Err(not_allowed()),
        _ => Err(not_served()),
    }
}

/// 404 for an unknown subresource.
pub(crate) fn not_served() -> StatusError {
    let message = "the server could not find the requested resource";
    StatusError::new(404, "NotFound", message).with_details(json!({}))
}

async fn evict(cluster: &Cluster, call: &Call) -> HandlerResult {
    const KIND: (&str, &str, &str) = ("policy", "v1", "Eviction");
    options::check_write(&call.query, "CreateOptions")?;
    let mut eviction = write_checks::read(&call.content_type, &call.body, KIND.2)?;
    write_checks::of_kind(&call.body, &mut eviction, KIND)?;
    let mut warnings = object::decode_as(call, KIND, &mut eviction)?;
    write_checks::settle(call, &mut eviction)?;
    cluster.store.read(|state| eviction::admit(state, &call.stored, &call.key(), &eviction))?;
    check_dry_runs(call, &eviction["deleteOptions"]["dryRun"])?;
    delete_options::check(&eviction["deleteOptions"])?;
    let asked = webhooks::on_subresource(cluster, call, "CREATE", KIND, (&eviction, &Value::Null)).await;
    warnings.extend(asked.map_err(|refusal| refusal.with_warnings(&warnings))?);
    let effect = match eviction["deleteOptions"]["dryRun"][0].as_str() {
        Some(_) => Effect::DryRun,
        None => call.effect(),
    };
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        eviction::evict(state, &cluster.catalog, call.namespace(), call.name(), &eviction, effect, now)
    })?;
    Ok(warn(success(), &warnings))
}

/// The query or the body may request a dry run, but not both.
fn check_dry_runs(call: &Call, said: &Value) -> Result<(), StatusError> {
    let asked: Vec<&str> = call.query.all("dryRun").collect();
    let said: Vec<&str> = said.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if asked.is_empty() || said.is_empty() || asked == said {
        return Ok(());
    }
    let shown = |words: &[&str]| format!("[{}]", words.join(" "));
    let (asked, said) = (shown(&asked), shown(&said));
    Err(StatusError::internal(format!(
        "Non-matching dry-run options in request and content: {asked} and {said}"
    )))
}

async fn bind(cluster: &Cluster, call: &Call) -> HandlerResult {
    options::check_write(&call.query, "CreateOptions")?;
    let body = write_checks::body(call)?;
    let kind = ("", "v1", "Binding");
    let warnings = webhooks::on_subresource(cluster, call, "CREATE", kind, (&body, &Value::Null)).await?;
    let node = body["target"]["name"].as_str().unwrap_or_default();
    let effect = call.effect();
    let now = cluster.clock.now();
    match effect {
        Effect::Real => {
            _ = cluster
                .store
                .write(|state| binding::bind(state, call.namespace(), call.name(), node, now))?;
        }
        Effect::DryRun => _ = cluster.store.read(|state| current(state, call))?,
    }
    Ok(warn(success(), &warnings))
}

/// Removes a terminating namespace whose finalizer is gone.
async fn finalize(cluster: &Cluster, call: &Call) -> HandlerResult {
    options::check_write(&call.query, "UpdateOptions")?;
    let object = write_checks::object(call)?;
    let effect = call.effect();
    let there = cluster.store.read(|state| current(state, call))?;
    let warnings = webhooks::on_update(cluster, call, &object, &there).await?;
    let stored = cluster.store.write(|state| {
        let current = state.get(&NAMESPACES, &call.key()).ok_or_else(|| call.not_found())?;
        let mut next = Value::clone(&current);
        next["spec"] = object["spec"].clone();
        registry::update(state, &call.stored, &next, Part::Main, effect)
    })?;
    Ok(warn(read::object_answer(cluster, call, 200, &stored), &warnings))
}

/// The log of every container is the text of the pod's annotation.
fn log(cluster: &Cluster, call: &Call) -> HandlerResult {
    let pod = cluster.store.read(|state| current(state, call))?;
    check_container(&pod, call.name(), call.query.get("container"))?;
    let logged = pod["metadata"]["annotations"][annotations::LOG].as_str();
    Ok(answer::text(200, logged.unwrap_or_default()))
}

/// The container must be unambiguous (`validateContainer` in the API server's `pod/strategy.go`).
fn check_container(pod: &Value, name: &str, wanted: Option<&str>) -> Result<(), StatusError> {
    let names = |list: &str| -> Vec<&str> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str()).collect()
    };
    let (own, first) = (names("containers"), names("initContainers"));
    let refused = match wanted {
        Some(wanted) if own.contains(&wanted) || first.contains(&wanted) => return Ok(()),
        Some(wanted) => format!("container {wanted} is not valid for pod {name}"),
        None if own.len() < 2 => return Ok(()),
        None => {
            let others = match first.as_slice() {
                [] => String::new(),
                first => format!(" or one of the init containers: [{}]", first.join(" ")),
            };
            let own = own.join(" ");
            format!("a container name must be specified for pod {name}, choose one of: [{own}]{others}")
        }
    };
    Err(StatusError::bad_request(refused))
}

fn scale(cluster: &Cluster, call: &Call) -> HandlerResult {
    let object = cluster.store.read(|state| current(state, call))?;
    Ok(answer::json(200, &as_scale(&object)))
}

const SCALE: (&str, &str, &str) = ("autoscaling", "v1", "Scale");

async fn set_scale(cluster: &Cluster, method: &Method, call: &Call) -> HandlerResult {
    let effect = call.effect();
    let read = || cluster.store.read(|state| current(state, call)).map(|object| as_scale(&object));
    let (old, wanted) = if *method == Method::PUT {
        options::check_write(&call.query, "UpdateOptions")?;
        let mut wanted = write_checks::read(&call.content_type, &call.body, SCALE.2)?;
        write_checks::of_kind(&call.body, &mut wanted, SCALE)?;
        (read()?, wanted)
    } else {
        let patch = PatchBody::read(call)?;
        let old = read()?;
        let wanted = patched(&old, patch?)?;
        (old, wanted)
    };
    let replicas = replicas(call, &wanted)?;
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(replicas);
    let warnings = webhooks::on_subresource(cluster, call, "UPDATE", SCALE, (&new, &old)).await?;
    // A patch without a resource version applies to any later version too.
    let version = wanted["metadata"]["resourceVersion"].as_str();
    let version =
        version.filter(|version| *method == Method::PUT || old["metadata"]["resourceVersion"] != *version);
    let scaled = cluster.store.write(|state| {
        let mut next = current(state, call)?;
        if let Some(version) = version {
            next["metadata"]["resourceVersion"] = json!(version);
        }
        next["spec"]["replicas"] = json!(replicas);
        registry::update(state, &call.stored, &next, Part::Main, effect)
    })?;
    Ok(warn(answer::json(200, &as_scale(&scaled)), &warnings))
}

/// The result of a patch of a scale. A scale has no lists and one field, so most patches are merge patches.
fn patched(old: &Value, patch: PatchBody) -> Result<Value, StatusError> {
    let mut scale = old.clone();
    match patch {
        PatchBody::Json(operations) => patch_body::operate(&mut scale, &operations)?,
        PatchBody::Merge(patch) | PatchBody::Strategic(patch) | PatchBody::Apply(patch) => {
            json_patch::merge(&mut scale, &patch);
        }
    }
    Ok(scale)
}

/// The replicas in a scale. A missing number is zero, since Go clients omit zeros.
fn replicas(call: &Call, scale: &Value) -> Result<i64, StatusError> {
    let said = &scale["spec"]["replicas"];
    let replicas = if said.is_null() { Some(0) } else { said.as_i64() };
    let replicas = replicas.ok_or_else(|| {
        StatusError::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas is {said}"
        ))
    })?;
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", said, "must be greater than or equal to 0");
        return Err(StatusError::invalid(SCALE.0, SCALE.2, call.name(), &[error]));
    }
    Ok(replicas)
}

fn current(state: &State, call: &Call) -> Result<Value, StatusError> {
    let object = state.get(&call.stored.collection, &call.key()).ok_or_else(|| call.not_found())?;
    Ok(Value::clone(&object))
}

fn as_scale(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let labels = object["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let selector: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": object["spec"]["replicas"]},
        "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or_default(),
            "selector": selector.join(",")},
    })
}

fn success() -> http::Response<answer::Body> {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    answer::json(201, &status)
}
