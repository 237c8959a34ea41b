//! Label and field selectors of lists, watches and deletes.

pub(crate) mod fields;
pub(crate) mod labels;

use serde_json::Value;

use crate::cluster::catalog::resource::Resource;
use crate::http::selector::fields::FieldSelector;
use crate::http::selector::labels::LabelQuery;
use crate::model::status_error::StatusError;

/// The selectors and namespace of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Namespace, or none for all.
    pub(crate) namespace: Option<String>,
    /// `labelSelector`.
    pub(crate) labels: LabelQuery,
    /// `fieldSelector`.
    pub(crate) fields: FieldSelector,
}

impl Selection {
    /// Parses both selectors.
    ///
    /// # Errors
    /// 400 for an invalid selector or an unsupported field.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: Option<&str>,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, StatusError> {
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            labels: LabelQuery::parse(labels.unwrap_or_default()).map_err(StatusError::bad_request)?,
            fields: FieldSelector::parse(resource, fields.unwrap_or_default())?,
        })
    }

    /// Whether it excludes objects of the namespace.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it matches the object.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        self.namespace.as_deref().is_none_or(|namespace| metadata["namespace"] == namespace)
            && self.labels.matches(&metadata["labels"])
            && self.fields.matches(object)
    }
}
