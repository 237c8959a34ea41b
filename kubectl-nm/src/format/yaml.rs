//! Objects as YAML, with strings quoted that have characters in them which a terminal would obey.
//!
//! The serializer writes some of these characters as they are, in strings without quotes, where an escape would mean
//! nothing. So it is handed words in place of such strings, and these then give way to the strings as JSON has them, which
//! YAML reads alike.

use serde_json::{Map, Value};

use crate::error::Error;
use crate::terminal::text::{harmless_document, is_escaped};

/// The object as YAML.
///
/// # Errors
///
/// When it cannot be written so.
pub(crate) fn to_string(object: &Value) -> Result<String, Error> {
    let mut quoted = Quoted { word: unused_word(object), texts: Vec::new() };
    let plain = quoted.replaced(object);
    let text = serde_saphyr::to_string(&plain).map_err(|error| Error::Unshowable(error.to_string()))?;
    Ok(quoted.put_back(&text))
}

/// Strings that are to be quoted, and the words that stand for them.
struct Quoted {
    word: String,
    texts: Vec<String>,
}

impl Quoted {
    fn replaced(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.word_for(text)),
            Value::Array(items) => items.iter().map(|item| self.replaced(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (self.word_for(key), self.replaced(value)));
                Value::Object(fields.collect::<Map<String, Value>>())
            }
            other => other.clone(),
        }
    }

    /// The text, or the word that stands for it.
    fn word_for(&mut self, text: &str) -> String {
        if !text.contains(is_escaped) {
            return text.to_owned();
        }
        self.texts.push(text.to_owned());
        self.word(self.texts.len() - 1)
    }

    fn word(&self, index: usize) -> String {
        format!("{}{index}x", self.word)
    }

    fn put_back(&self, text: &str) -> String {
        self.texts.iter().enumerate().fold(text.to_owned(), |text, (index, quoted)| {
            let quoted = harmless_document(&Value::String(quoted.clone()).to_string());
            text.replacen(&self.word(index), &quoted, 1)
        })
    }
}

/// A word that is nowhere in the object.
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
    fn what_is_quoted_reads_back_as_it_was() {
        let texts: Vec<String> = (0..12).map(|i| format!("{i} quoted quoted1x \u{202e}\"\\")).collect();
        let object = json!({"texts": texts, "key \u{61c}": {"tab": "a\tb", "delete": "a\u{7f}b", "lines": "a\u{9b}\nb\n"},
            "plain": "one\ntwo\n", "number": 1, "none": null});
        let text = to_string(&object).unwrap();
        assert!(text.is_ascii() && !text.contains(['\t', '\u{7f}']), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), object, "{text}");
    }
}
