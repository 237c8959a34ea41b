//! The parts of `OpenAPI` that kubectl needs before it writes: which kinds can be patched, with which parameters.
//!
//! It contains the schemas of CRDs but not those of built-in kinds, so `kubectl explain` does not describe them.

use serde_json::{Value, json};

use crate::cluster::Catalog;
use crate::cluster::catalog::discovery::named_groups;
use crate::cluster::catalog::resource::Resource;

const TITLE: &str = "Kubernetes";
const VERSION: &str = "v1.36.2";

/// The `OpenAPI` 2 document in protobuf, which kubectl requests before it applies a list. It describes no kind, and
/// kubectl validates only kinds that are described.
pub(crate) fn in_protobuf() -> Vec<u8> {
    let info = [part(1, TITLE.as_bytes()), part(2, VERSION.as_bytes())].concat();
    [part(1, b"2.0"), part(2, &info), part(8, &[])].concat()
}

/// A protobuf field with a short value.
fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
    const LENGTH_AND_BYTES: u8 = 2;
    let length = u8::try_from(bytes.len()).unwrap_or_default();
    [&[number << 3 | LENGTH_AND_BYTES, length], bytes].concat()
}

/// The document at a path, if it is an `OpenAPI` path.
pub(crate) fn document(catalog: &Catalog, path: &str) -> Option<Value> {
    if path == "/openapi/v3" {
        return Some(index(catalog));
    }
    if path == "/openapi/v2" {
        return Some(json!({"swagger": "2.0", "info": {"title": TITLE, "version": VERSION}, "paths": {},
            "definitions": {}}));
    }
    let root = path.strip_prefix("/openapi/v3/")?;
    let (group, version) = match root.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    };
    let resources = catalog.all();
    let of_version: Vec<&Resource> = resources
        .iter()
        .filter(|resource| resource.group() == group && resource.version == version)
        .collect();
    if of_version.is_empty() {
        return None;
    }
    let mut document = json!({"openapi": "3.0.0", "info": {"title": TITLE, "version": VERSION},
        "paths": {}, "components": {"schemas": {}}});
    for resource in of_version {
        describe(&mut document, resource, root);
    }
    Some(document)
}

fn index(catalog: &Catalog) -> Value {
    let mut paths = json!({"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}});
    for (group, versions) in named_groups(catalog) {
        for version in versions {
            let path = format!("apis/{group}/{version}");
            paths[&path] = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
        }
    }
    json!({"paths": paths})
}

fn describe(document: &mut Value, resource: &Resource, root: &str) {
    let kind = json!({"group": resource.group(), "version": resource.version, "kind": resource.kind});
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"].map(parameter).into();
    let operation = |action: &str| {
        json!({"parameters": parameters, "responses": {}, "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind})
    };
    let place = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{root}/{place}{}", resource.plural());
    document["paths"][&collection] = json!({"post": operation("post")});
    document["paths"][format!("{collection}/{{name}}")] =
        json!({"patch": operation("patch"), "put": operation("put")});
    let mut schema = match &resource.definition {
        Some(definition) => definition.schema.clone(),
        None => json!({"type": "object"}),
    };
    schema["x-kubernetes-group-version-kind"] = json!([kind]);
    let reversed: Vec<&str> = resource.group().rsplit('.').collect();
    let name = format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind);
    document["components"]["schemas"][name] = schema;
}
