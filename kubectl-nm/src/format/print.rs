//! Objects in the forms that programs read.

use serde_json::{Value, json};

use crate::error::Error;
use crate::format::form::Form;
use crate::format::yaml;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

/// Objects as one List, as kubectl puts them together.
pub(crate) fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
}

impl Form {
    /// Prints an object, or a List, in this form.
    ///
    /// # Errors
    ///
    /// When a template asks for what the object cannot give, or stdout is closed.
    pub(crate) fn print(&self, object: &Value, out: &mut Output) -> Result<(), Error> {
        match self {
            Self::Json => out.document(&(pretty(&shown(object))? + "\n"))?,
            Self::Yaml => out.document(&yaml::to_string(&shown(object))?)?,
            Self::Name => {
                for item in items(object) {
                    out.data(&Line::new(name(item)))?;
                }
            }
            Self::JsonPath(template) => {
                let text = template.render(object);
                out.text(
                    &text.map_err(|why| Error::Template { template: template.text().to_owned(), why })?,
                )?;
            }
            Self::Columns(columns) => {
                let table = columns.table(items(object));
                for line in table.map_err(|(template, why)| Error::Template { template, why })? {
                    out.data(&line)?;
                }
            }
        }
        Ok(())
    }
}

fn pretty(object: &Value) -> Result<String, Error> {
    serde_json::to_string_pretty(object).map_err(|error| Error::Unshowable(error.to_string()))
}

/// The objects of a List, or the one object.
fn items(object: &Value) -> &[Value] {
    match object["items"].as_array() {
        Some(items) if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => items,
        _ => std::slice::from_ref(object),
    }
}

/// As kubectl, without managed fields: they are bookkeeping and bury everything else.
fn shown(object: &Value) -> Value {
    let mut shown = object.clone();
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(&mut shown);
    shown.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(strip);
    shown
}

/// `kind.group/name`.
pub(crate) fn name(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    group.map_or_else(|| format!("{kind}/{name}"), |(group, _)| format!("{kind}.{group}/{name}"))
}

/// The name of an object, and the namespace that it is in: some names are there twice.
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
    use crate::format::{Format, parse};
    use crate::terminal::output::captured::output;

    fn printed(format: &str, object: &Value) -> String {
        let (mut out, captured) = output();
        let Ok(Format::Form(form)) = parse(format) else { panic!("{format} is no form") };
        form.print(object, &mut out).unwrap();
        captured.data()
    }

    fn maintenance(reason: &str) -> Value {
        json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "spec": {"reason": reason}})
    }

    #[test]
    fn names_are_those_that_kubectl_takes() {
        assert_eq!(printed("name", &maintenance("")), "nodemaintenance.nodemaintenance.medik8s.io/a\n");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        assert_eq!(printed("name", &list(&[node.clone(), node])), "node/n1\nnode/n1\n");
        assert_eq!(printed("name", &list(&[])), "");
    }

    #[test]
    fn documents_keep_their_meaning_and_are_harmless() {
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
    fn a_text_without_anything_else_to_quote_keeps_its_meaning_too() {
        for reason in ["\u{202e}disk", "disk \u{61c}", "a\u{200f}\nb\n", "\u{2028}", "a\u{9b}b"] {
            let mut object = maintenance(reason);
            object["metadata"]["annotations"] = json!({"example.com/x": reason, "plain": "text"});
            let text = printed("yaml", &object);
            assert!(text.is_ascii(), "{text:?}");
            let value: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(value["spec"]["reason"], reason, "{text}");
            assert_eq!(value["metadata"]["annotations"], object["metadata"]["annotations"], "{text}");
            assert!(text.contains("plain: text\n"), "nothing else is written otherwise: {text}");
        }
    }

    #[test]
    fn templates_see_all_and_print_to_the_byte() {
        let object = maintenance("two\nlines");
        assert_eq!(
            printed("jsonpath={.metadata.managedFields[0].manager}: {.spec.reason}", &object),
            "m: two\nlines"
        );
        assert_eq!(printed("custom-columns=NAME:.metadata.name", &list(&[])), "NAME\n");
        assert_eq!(printed("custom-columns=NAME:.metadata.name", &object), "NAME\na\n");
    }

    #[test]
    fn a_template_that_asks_too_much_is_named() {
        let (mut out, captured) = output();
        let Ok(Format::Form(form)) = parse("jsonpath={.items[2]}") else { panic!("it is a form") };
        let failed = form.print(&list(&[]), &mut out).unwrap_err();
        assert_eq!(
            failed.to_string(),
            "error: error executing jsonpath \"{.items[2]}\": array index out of bounds: index 2, length 0"
        );
        assert_eq!(captured.data(), "");
    }
}
