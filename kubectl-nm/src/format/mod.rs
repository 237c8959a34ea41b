//! `-o`: how objects are printed.
//!
//! [`OutputFormat`] is the value of the flag. Each command prints its own tables; a [`DataFormat`] prints any object or List.

mod yaml;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde_json::{Value, json};

use crate::error::Error;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Table,
    /// A table with more columns.
    Wide,
    Data(DataFormat),
}

/// A format for programs, which works for any object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataFormat {
    Json,
    Yaml,
    /// `kind.group/name`, as kubectl accepts it.
    Name,
}

const FORMATS: [(&str, OutputFormat); 5] = [
    ("table", OutputFormat::Table),
    ("wide", OutputFormat::Wide),
    ("json", OutputFormat::Data(DataFormat::Json)),
    ("yaml", OutputFormat::Data(DataFormat::Yaml)),
    ("name", OutputFormat::Data(DataFormat::Name)),
];

/// Formats of kubectl that this program leaves to kubectl.
const KUBECTL_FORMATS: [&str; 4] = ["jsonpath", "custom-columns", "go-template", "template"];

pub(crate) fn parse(text: &str) -> Result<OutputFormat, String> {
    parse_one_of(text, |_| true)
}

/// Parses the `-o` of a command that prints objects of several kinds, for which there is no table.
pub(crate) fn parse_objects(text: &str) -> Result<DataFormat, String> {
    parse_data_format(text, &[DataFormat::Json, DataFormat::Yaml, DataFormat::Name])
}

/// Parses the `-o` of a command whose data is not an object and has no name.
pub(crate) fn parse_data(text: &str) -> Result<DataFormat, String> {
    parse_data_format(text, &[DataFormat::Json, DataFormat::Yaml])
}

fn parse_data_format(text: &str, allowed: &[DataFormat]) -> Result<DataFormat, String> {
    let is_allowed = |format| matches!(format, OutputFormat::Data(data) if allowed.contains(&data));
    match parse_one_of(text, is_allowed)? {
        OutputFormat::Data(data) => Ok(data),
        OutputFormat::Table | OutputFormat::Wide => unreachable!("tables are not allowed"),
    }
}

/// Parses a value of `-o` for a command that has only some of the formats.
///
/// # Errors
///
/// When it is not one of them. The message lists them, and for formats of kubectl it names kubectl's command.
pub(crate) fn parse_one_of(
    text: &str,
    is_allowed: impl Fn(OutputFormat) -> bool,
) -> Result<OutputFormat, String> {
    let allowed = || FORMATS.iter().filter(|(_, format)| is_allowed(*format));
    if let Some((_, format)) = allowed().find(|(name, _)| *name == text) {
        return Ok(*format);
    }
    let names: Vec<&str> = allowed().map(|(name, _)| *name).collect();
    let expected = format!("expected one of: {}", names.join(", "));
    // Only the commands with a wide table show maintenances.
    if is_allowed(OutputFormat::Wide) && is_kubectl_format(text) {
        let kind = text.split('=').next().unwrap_or_default();
        return Err(format!(
            "{expected}\nhint: kubectl prints maintenances in this format: kubectl get nm -o {kind}=..."
        ));
    }
    Err(expected)
}

/// Whether kubectl has an output format of this name.
pub(crate) fn is_format(text: &str) -> bool {
    parse(text).is_ok() || is_kubectl_format(text)
}

fn is_kubectl_format(text: &str) -> bool {
    KUBECTL_FORMATS.iter().any(|format| text.starts_with(format))
}

/// The formats that `parse` accepts, for shell completion.
pub(crate) fn offered<T: 'static>(parse: fn(&str) -> Result<T, String>) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let accepted = FORMATS.iter().map(|(name, _)| *name).filter(|name| parse(name).is_ok());
        accepted.map(CompletionCandidate::new).collect()
    })
}

/// Objects as one List, as kubectl combines them.
pub(crate) fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
}

impl DataFormat {
    pub(crate) fn print(self, object: &Value, out: &mut Output) -> Result<(), Error> {
        match self {
            Self::Json => out.document(&(to_json(&without_managed_fields(object))? + "\n"))?,
            Self::Yaml => out.document(&yaml::to_string(&without_managed_fields(object))?)?,
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
pub(crate) fn name(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    group.map_or_else(|| format!("{kind}/{name}"), |(group, _)| format!("{kind}.{group}/{name}"))
}

/// The name of an object with its namespace, because objects in different namespaces may share a name.
pub(crate) fn located(object: &Value) -> String {
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

    #[test]
    fn each_command_accepts_only_its_formats() {
        for (name, format) in FORMATS {
            assert_eq!(parse(name), Ok(format));
            let data = match format {
                OutputFormat::Data(data) => Some(data),
                OutputFormat::Table | OutputFormat::Wide => None,
            };
            assert_eq!(parse_objects(name).ok(), data, "{name}");
            assert_eq!(parse_data(name).ok(), data.filter(|data| *data != DataFormat::Name), "{name}");
        }
        assert_eq!(parse("html").unwrap_err(), "expected one of: table, wide, json, yaml, name");
        assert_eq!(parse("json=x").unwrap_err(), "expected one of: table, wide, json, yaml, name");
        assert_eq!(parse_data("table").unwrap_err(), "expected one of: json, yaml");
    }

    #[test]
    fn templates_are_left_to_kubectl() {
        for (text, command) in [
            ("jsonpath={.kind}", "kubectl get nm -o jsonpath=..."),
            ("jsonpath", "kubectl get nm -o jsonpath=..."),
            ("custom-columns=A:.b", "kubectl get nm -o custom-columns=..."),
            ("go-template-file=x", "kubectl get nm -o go-template-file=..."),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.starts_with("expected one of: ") && refused.ends_with(command), "{refused}");
            for refused in [parse_objects(text).unwrap_err(), parse_data(text).unwrap_err()] {
                assert!(
                    refused.starts_with("expected one of: ") && !refused.contains("kubectl"),
                    "{refused}"
                );
            }
        }
    }

    fn printed(format: &str, object: &Value) -> String {
        let (mut out, captured) = output();
        parse_objects(format).unwrap().print(object, &mut out).unwrap();
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
    fn only_strings_with_control_characters_are_quoted() {
        for reason in ["\u{202e}disk", "disk \u{61c}", "a\u{200f}\nb\n", "\u{2028}", "a\u{9b}b"] {
            let mut object = maintenance(reason);
            object["metadata"]["annotations"] = json!({"example.com/x": reason, "plain": "text"});
            let text = printed("yaml", &object);
            assert!(text.is_ascii(), "{text:?}");
            let value: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(value["spec"]["reason"], reason, "{text}");
            assert_eq!(value["metadata"]["annotations"], object["metadata"]["annotations"], "{text}");
            assert!(text.contains("plain: text\n"), "other strings are not quoted: {text}");
        }
    }
}
