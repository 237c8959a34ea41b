//! Objects as YAML, with strings that contain control characters quoted and escaped.
//!
//! The serializer writes some of these characters in strings without quotes, where YAML has no escapes. So such strings are
//! replaced by placeholders before serialization, and the placeholders by JSON strings, which are valid YAML, after it.

use serde_json::{Map, Value};

use crate::error::Error;
use crate::terminal::text::{harmless_document, needs_escape};

pub(crate) fn to_string(object: &Value) -> Result<String, Error> {
    let mut quoted = QuotedStrings { placeholder: unused_word(object), texts: Vec::new() };
    let plain = quoted.replace(object);
    let text = serde_saphyr::to_string(&plain).map_err(|error| Error::Unshowable(error.to_string()))?;
    Ok(quoted.restore(&text))
}

/// The strings to quote, and their placeholders.
struct QuotedStrings {
    placeholder: String,
    texts: Vec<String>,
}

impl QuotedStrings {
    fn replace(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text_or_placeholder(text)),
            Value::Array(items) => items.iter().map(|item| self.replace(item)).collect(),
            Value::Object(fields) => {
                let fields =
                    fields.iter().map(|(key, value)| (self.text_or_placeholder(key), self.replace(value)));
                Value::Object(fields.collect::<Map<String, Value>>())
            }
            other => other.clone(),
        }
    }

    /// The text, or its placeholder.
    fn text_or_placeholder(&mut self, text: &str) -> String {
        if !text.contains(needs_escape) {
            return text.to_owned();
        }
        self.texts.push(text.to_owned());
        self.placeholder(self.texts.len() - 1)
    }

    fn placeholder(&self, index: usize) -> String {
        format!("{}{index}x", self.placeholder)
    }

    fn restore(&self, text: &str) -> String {
        self.texts.iter().enumerate().fold(text.to_owned(), |text, (index, quoted)| {
            let quoted = harmless_document(&Value::String(quoted.clone()).to_string());
            text.replacen(&self.placeholder(index), &quoted, 1)
        })
    }
}

/// A word that does not occur in the object.
fn unused_word(object: &Value) -> String {
    let text = object.to_string();
    let mut word = String::from("quoted");
    while text.contains(&word) {
        word.push('q');
    }
    word
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quoted_strings_are_parsed_back_unchanged() {
        let texts: Vec<String> = (0..12).map(|i| format!("{i} quoted quoted1x \u{202e}\"\\")).collect();
        let object = json!({"texts": texts, "key \u{61c}": {"tab": "a\tb", "delete": "a\u{7f}b", "lines": "a\u{9b}\nb\n"},
            "plain": "one\ntwo\n", "number": 1, "none": null});
        let text = to_string(&object).unwrap();
        assert!(text.is_ascii() && !text.contains(['\t', '\u{7f}']), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), object, "{text}");
    }
}
