//! kubectl's `JSONPath` templates: `{range .items[*]}{.metadata.name}{"\n"}{end}`.
//!
//! The dialect is kubectl's own, as its documentation describes it
//! (<https://kubernetes.io/docs/reference/kubectl/jsonpath/>), and not that of RFC 9535: text stands between actions in
//! braces, `range` and `end` repeat what is between them, and a key that is missing is empty. [`parse`] reads a
//! template, [`evaluate`] finds the values in an object, [`go_text`] writes them as a program in Go does, because that
//! is what scripts expect. A test holds the three to the real kubectl.

mod evaluate;
mod go_text;
mod parse;

use serde_json::Value;

pub(crate) use go_text::sprint;

/// A template that has been read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    text: String,
    nodes: Vec<parse::Node>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it, in kubectl's words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), nodes: parse::parse(text)? })
    }

    /// Reads a path as columns are given by: braces and the first dot may be left out.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub(crate) fn parse_path(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Self::parse("");
        }
        let path = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let path = path.strip_prefix('.').unwrap_or(path);
        if path.is_empty() || path.contains(['{', '}']) {
            return Err(format!(
                "unexpected path string, expected a 'name1.name2' or '.name1.name2', not '{text}'"
            ));
        }
        Self::parse(&format!("{{.{path}}}"))
    }

    /// The template as it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What it makes of an object.
    ///
    /// # Errors
    ///
    /// When the template asks for what the object cannot give, such as an element past the end.
    pub(crate) fn render(&self, object: &Value) -> Result<String, String> {
        let groups = evaluate::evaluate(&self.nodes, object)?;
        let texts = groups
            .iter()
            .map(|group| group.iter().map(|value| go_text::print(value)).collect::<Vec<_>>().join(" "));
        Ok(texts.collect())
    }

    /// The values that it finds in an object, as text.
    ///
    /// # Errors
    ///
    /// When the template asks for what the object cannot give.
    pub(crate) fn values(&self, object: &Value) -> Result<Vec<String>, String> {
        let groups = evaluate::evaluate(&self.nodes, object)?;
        Ok(groups.iter().flatten().map(|value| sprint(value)).collect())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
