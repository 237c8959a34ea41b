//! The `CustomResourceDefinition` of `NodeMaintenance`, as it is installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use crate::api::maintenance::NodeMaintenance;

/// The definition that the derive makes of the types, with two changes: the fields of the status have no defaults, which
/// the API server would fill into every status that another controller writes, and no field is nullable.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = NodeMaintenance::crd();
    for version in &mut crd.spec.versions {
        let root = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(root) = root {
            root.title = None;
            walk(root, &mut |schema| schema.nullable = None);
            if let Some(status) = root.properties.as_mut().and_then(|fields| fields.get_mut("status")) {
                walk(status, &mut |schema| schema.default = None);
            }
        }
    }
    crd
}

fn walk(schema: &mut JSONSchemaProps, visit: &mut impl FnMut(&mut JSONSchemaProps)) {
    visit(schema);
    for field in schema.properties.iter_mut().flat_map(|fields| fields.values_mut()) {
        walk(field, visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        walk(items, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_compatible_with_the_medik8s_operators() {
        let crd = serde_json::to_value(crd()).unwrap();
        assert_eq!(crd["metadata"]["name"], "nodemaintenances.nodemaintenance.medik8s.io");
        assert_eq!(crd["spec"]["scope"], "Cluster");
        assert_eq!(crd["spec"]["names"]["shortNames"][0], "nm");
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], "v1beta1");
        assert!(version["subresources"]["status"].is_object());
        let columns: Vec<&str> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        assert_eq!(columns, ["Node", "Phase", "Progress", "Pods", "Gone", "Blocked", "Reason", "Age"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        for column in version["additionalPrinterColumns"].as_array().unwrap() {
            let path = column["jsonPath"].as_str().unwrap().split('.').skip(1);
            let field = path.fold(schema, |schema, name| &schema["properties"][name]);
            // The API server prints a list as JSON. It does not describe its own metadata here.
            assert!(!field["type"].is_array() && field["type"] != "array", "{column}");
        }
        let node_name = &schema["properties"]["spec"]["properties"]["nodeName"];
        assert_eq!(node_name["minLength"], 1);
        assert_eq!(
            node_name["x-kubernetes-validations"][0]["message"],
            "updating spec.nodeName isn't allowed"
        );
        let drain = &schema["properties"]["spec"]["properties"]["drain"]["properties"];
        assert_eq!(
            (drain["gracePeriodSeconds"]["default"].as_i64(), drain["force"]["default"].as_bool()),
            (Some(-1), Some(true))
        );
        assert!(!schema["properties"]["status"].to_string().contains("\"default\""));
    }
}
