//! `-o`: how objects are printed.
//!
//! [`OutputFormat`] is the value of the flag. Each command prints its own tables; a [`DataFormat`] prints any object or List.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};

use crate::error::Error;
use crate::terminal::output::Output;
use crate::terminal::text::{Line, needs_escape};

/// Value of `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// The table of the command.
    Table,
    /// The table with additional columns.
    Wide,
    /// A format for programs.
    Data(DataFormat),
}

/// A format for programs, which works for any object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFormat {
    /// Indented JSON, without managed fields.
    Json,
    /// YAML, without managed fields.
    Yaml,
    /// `kind.group/name`, as kubectl accepts it.
    Name,
}

/// The parser of `-o` for a command with these formats.
pub fn formats<const N: usize>(names: [&'static str; N]) -> impl TypedValueParser<Value = OutputFormat> {
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "table" => OutputFormat::Table,
        "wide" => OutputFormat::Wide,
        name => OutputFormat::Data(data_format(name)),
    })
}

/// The parser of `-o` for a command with these formats and no table.
pub fn data_formats<const N: usize>(names: [&'static str; N]) -> impl TypedValueParser<Value = DataFormat> {
    PossibleValuesParser::new(names).map(|name| data_format(&name))
}

fn data_format(name: &str) -> DataFormat {
    match name {
        "yaml" => DataFormat::Yaml,
        "name" => DataFormat::Name,
        _ => DataFormat::Json,
    }
}

/// Objects as one List, as kubectl combines them.
pub fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
}

impl DataFormat {
    /// Prints an object, or the items of a List.
    ///
    /// # Errors
    ///
    /// If the object cannot be converted, or if standard output cannot be written.
    pub fn print(self, object: &Value, out: &mut Output) -> Result<(), Error> {
        match self {
            Self::Json => out.document(&(to_json(&without_managed_fields(object))? + "\n"))?,
            Self::Yaml => out.document(&to_yaml(&without_managed_fields(object))?)?,
            Self::Name => {
                for item in items(object) {
                    out.data(&Line::new(name(item)))?;
                }
            }
        }
        Ok(())
    }
}

fn to_json(object: &Value) -> Result<String, Error> {
    serde_json::to_string_pretty(object).map_err(|error| Error::Unshowable(error.to_string()))
}

/// YAML. The serializer writes some control characters without quotes, where YAML cannot escape them. An object with such
/// characters is written as JSON, which is YAML too.
fn to_yaml(object: &Value) -> Result<String, Error> {
    let yaml = serde_saphyr::to_string(object).map_err(|error| Error::Unshowable(error.to_string()))?;
    if yaml.contains(needs_escape) { Ok(to_json(object)? + "\n") } else { Ok(yaml) }
}

/// The objects of a List, or the object itself.
fn items(object: &Value) -> &[Value] {
    match object["items"].as_array() {
        Some(items) if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => items,
        _ => std::slice::from_ref(object),
    }
}

/// The object without managed fields, which kubectl leaves out too.
fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(&mut object);
    object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(strip);
    object
}

/// `kind.group/name`.
pub fn name(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    group.map_or_else(|| format!("{kind}/{name}"), |(group, _)| format!("{kind}.{group}/{name}"))
}

/// The name of an object with its namespace, because objects in different namespaces may share a name.
pub fn located(object: &Value) -> String {
    let name = name(object);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{name} (namespace {namespace})"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::output::captured::output;

    fn printed(format: &str, object: &Value) -> String {
        let (mut out, captured) = output();
        data_format(format).print(object, &mut out).unwrap();
        captured.data()
    }

    fn maintenance(reason: &str) -> Value {
        json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "spec": {"reason": reason}})
    }

    #[test]
    fn names_are_those_that_kubectl_accepts() {
        assert_eq!(printed("name", &maintenance("")), "nodemaintenance.nodemaintenance.medik8s.io/a\n");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        assert_eq!(printed("name", &list(&[node.clone(), node])), "node/n1\nnode/n1\n");
        assert_eq!(printed("name", &list(&[])), "");
    }

    #[test]
    fn documents_keep_their_meaning_without_control_characters() {
        let mut object = maintenance("a\u{1b}[31mb\u{9b}c\nd\te: #\u{202e}\u{7f}\r\n");
        object["spec"]["fromTheFuture"] = json!({"x": [1, "no", "~", " y "]});
        for format in ["json", "yaml"] {
            let text = printed(format, &list(&[object.clone()]));
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
            assert!(!text.contains("managedFields"));
            let value: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(value["items"][0]["spec"], object["spec"], "{text}");
        }
    }

    #[test]
    fn yaml_with_control_characters_is_escaped() {
        for reason in ["\u{202e}disk", "disk \u{61c}", "a\u{200f}\nb\n", "\u{2028}", "a\u{9b}b"] {
            let mut object = maintenance(reason);
            object["metadata"]["annotations"] = json!({"example.com/x": reason, "plain": "text"});
            let text = printed("yaml", &object);
            assert!(text.is_ascii(), "{text:?}");
            let value: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(value["spec"]["reason"], reason, "{text}");
            assert_eq!(value["metadata"]["annotations"], object["metadata"]["annotations"], "{text}");
        }
    }
}
