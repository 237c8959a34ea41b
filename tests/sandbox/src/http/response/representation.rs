//! Objects in the requested format: whole, metadata only, or rows of a table.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{NEW_EVENTS, PODS, Resource};
use crate::cluster::store::Object;
use crate::http::request::negotiate::ResponseFormat;
use crate::http::response::table;
use crate::model::event_versions;

/// The format for the objects of one resource.
#[derive(Debug, Clone)]
pub(crate) struct Representation {
    resource: Resource,
    form: ResponseFormat,
    /// `includeObject`: what the rows of a table contain besides the cells.
    include: Option<String>,
    now: Timestamp,
}

impl Representation {
    /// A way of showing.
    pub(crate) fn new(
        resource: &Resource,
        form: ResponseFormat,
        include: Option<&str>,
        now: Timestamp,
    ) -> Self {
        Self { resource: resource.clone(), form, include: include.map(str::to_owned), now }
    }

    /// One object.
    pub(crate) fn one(&self, object: &Value) -> Vec<u8> {
        let object = self.shape(object);
        match self.form {
            ResponseFormat::Whole => bytes(&self.whole(&object, true)),
            ResponseFormat::Metadata => bytes(&partial(&object)),
            ResponseFormat::Table => bytes(&self.table(&json!({}), &[object.as_ref()], true)),
        }
    }

    /// One object in a watch event. A table has its columns only in the first event.
    pub(crate) fn event(&self, object: &Value, first: bool) -> Vec<u8> {
        let object = self.shape(object);
        match self.form {
            ResponseFormat::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                bytes(&self.table(&metadata, &[object.as_ref()], first))
            }
            _ => self.one(&object),
        }
    }

    /// A bookmark object.
    pub(crate) fn bookmark(&self, metadata: &Value) -> Value {
        match self.form {
            ResponseFormat::Table => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": metadata["resourceVersion"]}, "columnDefinitions": null,
                "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}]}),
            ResponseFormat::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            ResponseFormat::Whole => {
                let mut object = json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata});
                if self.resource.collection == PODS {
                    // An empty pod, as Go serializes it.
                    object["spec"] = json!({"containers": null});
                    object["status"] = json!({});
                }
                object
            }
        }
    }

    /// A list.
    pub(crate) fn list(&self, metadata: &Value, objects: impl IntoIterator<Item = Object>) -> Vec<u8> {
        if self.form == ResponseFormat::Table {
            let objects: Vec<Object> = objects.into_iter().collect();
            let shaped: Vec<Cow<'_, Value>> = objects.iter().map(|object| self.shape(object)).collect();
            let shaped: Vec<&Value> = shaped.iter().map(AsRef::as_ref).collect();
            return bytes(&self.table(metadata, &shaped, true));
        }
        let (kind, api_version) = match self.form {
            ResponseFormat::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            _ => (self.list_kind(), self.resource.api_version()),
        };
        // Serialized one by one, so that not all pods of a large cluster are unfolded at once.
        let mut out = Vec::new();
        let head = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        out.extend(bytes(&head));
        out.pop();
        out.extend(b",\"items\":[");
        for (index, object) in objects.into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let object = self.shape(&object);
            let named = self.resource.definition.is_some();
            match self.form {
                ResponseFormat::Metadata => out.extend(bytes(&partial(&object))),
                _ => out.extend(bytes(&self.whole(&object, named))),
            }
        }
        out.extend(b"]}");
        out
    }

    fn list_kind(&self) -> String {
        let defined = self.resource.definition.as_ref();
        defined
            .map_or_else(|| format!("{}List", self.resource.kind), |definition| definition.list_kind.clone())
    }

    fn shape<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if self.resource.collection == NEW_EVENTS {
            Cow::Owned(event_versions::to_new(object))
        } else {
            Cow::Borrowed(object)
        }
    }

    fn whole<'a>(&'a self, object: &'a Value, named: bool) -> Whole<'a> {
        Whole { resource: &self.resource, object, named }
    }

    fn table(&self, metadata: &Value, objects: &[&Value], with_columns: bool) -> Value {
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let shown = match self.include.as_deref() {
                    Some("None") => Value::Null,
                    Some("Object") => json!(self.whole(object, true)),
                    _ => partial(object),
                };
                json!({"cells": table::cells(&self.resource, object, self.now), "object": shown})
            })
            .collect();
        let columns = if with_columns { table::columns(&self.resource) } else { Value::Null };
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows})
    }
}

/// An object with the requested kind and version. Items of built-in lists have neither.
struct Whole<'a> {
    resource: &'a Resource,
    object: &'a Value,
    named: bool,
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.named {
            map.serialize_entry("kind", &self.resource.kind)?;
            map.serialize_entry("apiVersion", &self.resource.api_version())?;
        }
        for (name, value) in self.object.as_object().into_iter().flatten() {
            if name != "kind" && name != "apiVersion" {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
