//! Validation of custom resources.
//!
//! An object is pruned (`prune`), completed with defaults, validated against the schema (`schema`), and then against
//! CEL rules (`rules`), which may refer to the old object. All of this is pure. `catalog` derives resources from CRDs,
//! and `registry` installs them.

mod columns;
mod prune;
mod rules;
mod schema;

pub(crate) use crate::cluster::crd::columns::{Column, cell};

use serde_json::Value;

use crate::cluster::crd::rules::Rules;
use crate::model::status_error::FieldError;

/// One version of a CRD.
#[derive(Debug)]
pub struct Definition {
    /// `openAPIV3Schema`.
    pub(crate) schema: Value,
    /// `additionalPrinterColumns`.
    pub(crate) columns: Vec<Column>,
    /// Paths of `selectableFields`, as field selectors write them.
    pub(crate) selectable: Vec<String>,
    /// `names.listKind`.
    pub(crate) list_kind: String,
    rules: Rules,
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema && self.columns == other.columns && self.list_kind == other.list_kind
    }
}

impl Eq for Definition {}

impl Definition {
    /// Reads a version of a CRD.
    ///
    /// # Errors
    /// Errors in the schema's rules.
    pub(crate) fn read(version: &Value, list_kind: String) -> Result<Self, String> {
        let schema = version["schema"]["openAPIV3Schema"].clone();
        Ok(Self {
            columns: columns::read(&version["additionalPrinterColumns"]),
            selectable: selectable(&version["selectableFields"]),
            list_kind,
            rules: Rules::compile(&schema)?,
            schema,
        })
    }

    /// Drops unknown fields and returns them.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::root(&self.schema, object)
    }

    /// Sets defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        prune::fill(&self.schema, object);
    }

    /// Validates an object, with the old object on an update.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = schema::check(&self.schema, object, old);
        // With these errors the API server does not evaluate rules, and reports that (`hasBlockingErr` in
        // `apiextensions-apiserver/pkg/registry/customresource/strategy.go`).
        let meaningless = |error: &FieldError| {
            matches!(
                error.reason,
                "FieldValueNotSupported"
                    | "FieldValueRequired"
                    | "FieldValueTooLong"
                    | "FieldValueTooMany"
                    | "FieldValueTypeInvalid"
            )
        };
        if errors.iter().any(meaningless) {
            errors.push(FieldError {
                reason: "FieldValueInvalid",
                field: "<nil>".into(),
                message:
                    "Invalid value: null: some validation rules were not checked because the object was \
                          invalid; correct the existing errors to complete validation"
                        .into(),
            });
            return errors;
        }
        errors.extend(self.rules.check(object, old));
        errors
    }
}

fn selectable(fields: &Value) -> Vec<String> {
    let paths = fields.as_array().into_iter().flatten();
    paths
        .filter_map(|field| field["jsonPath"].as_str())
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect()
}
