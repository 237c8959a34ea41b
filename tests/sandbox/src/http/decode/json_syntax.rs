//! JSON parsing with the error messages of Go.

use serde_json::Value;

/// Parses JSON.
///
/// # Errors
/// The message of Go.
pub(crate) fn read(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| complaint(text).unwrap_or_else(|| error.to_string()))
}

/// Larger whole numbers are written with an exponent and stay as they are.
const WITH_EXPONENT: f64 = 9.2e18;

/// Converts numbers with a zero fraction to integers, as Go does: `0.0` becomes `0`.
pub(crate) fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole =
                number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < WITH_EXPONENT);
            if let Some(whole) = whole.and_then(|number| format!("{number:.0}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers),
        _ => {}
    }
}

/// The name of a value's type in error messages.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The syntax error of a text.
pub(crate) fn complaint(text: &[u8]) -> Option<String> {
    let mut scan = Scan { text, at: 0, depth: 0 };
    let found = scan.value().and_then(|()| match scan.peek() {
        Some(_) => Err(scan.unexpected("after top-level value")),
        None => Ok(()),
    });
    found.err()
}

/// The maximum nesting depth, which protects the stack.
const DEEPEST: usize = 127;
const CUT_SHORT: &str = "unexpected end of JSON input";

type SyntaxError = Result<(), String>;

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Scan<'_> {
    /// The next byte that is not a space.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn here(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn unexpected(&self, place: &str) -> String {
        match self.here() {
            None => CUT_SHORT.into(),
            Some(b'\'') => format!("invalid character '\\'' {place}"),
            Some(byte) if byte.is_ascii_control() || (0x80..0xa0).contains(&byte) => {
                let shown = match byte {
                    b'\n' => "\\n".to_owned(),
                    b'\r' => "\\r".to_owned(),
                    b'\t' => "\\t".to_owned(),
                    0x80.. => format!("\\u{byte:04x}"),
                    _ => format!("\\x{byte:02x}"),
                };
                format!("invalid character '{shown}' {place}")
            }
            Some(b'\\') => format!("invalid character '\\\\' {place}"),
            Some(byte) => format!("invalid character '{}' {place}", char::from(byte)),
        }
    }

    fn value(&mut self) -> SyntaxError {
        match self.peek() {
            Some(b'{') => self.below(Self::object),
            Some(b'[') => self.below(Self::array),
            Some(b'"') => self.string(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn below(&mut self, read: fn(&mut Self) -> SyntaxError) -> SyntaxError {
        if self.depth == DEEPEST {
            return Err("exceeded max depth".into());
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }

    fn object(&mut self) -> SyntaxError {
        self.at += 1;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            self.string()?;
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.value()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn array(&mut self) -> SyntaxError {
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.unexpected("after array element")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> SyntaxError {
        self.at += 1;
        loop {
            match self.here() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                None | Some(0..0x20) => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(())
    }

    fn escape(&mut self) -> SyntaxError {
        self.at += 1;
        match self.here() {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.here().is_some_and(|digit| digit.is_ascii_hexdigit()) {
                        return Err(self.unexpected("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.unexpected("in string escape code")),
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> SyntaxError {
        for letter in word.bytes() {
            if self.here() != Some(letter) {
                let expecting = char::from(letter);
                return Err(self.unexpected(&format!("in literal {word} (expecting '{expecting}')")));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> SyntaxError {
        if self.here() == Some(b'-') {
            self.at += 1;
        }
        match self.here() {
            Some(b'0') => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.here(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.here(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digits(&mut self, place: &str) -> SyntaxError {
        if !self.here().is_some_and(|digit| digit.is_ascii_digit()) {
            return Err(self.unexpected(place));
        }
        while self.here().is_some_and(|digit| digit.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_as_go_tells_it() {
        for (text, expected) in [
            ("", CUT_SHORT),
            (r#"{"a":"#, CUT_SHORT),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[,]", "invalid character ',' looking for beginning of value"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("{}}", "invalid character '}' after top-level value"),
            ("tru", CUT_SHORT),
            ("trap", "invalid character 'a' in literal true (expecting 'u')"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            (r#""\q""#, "invalid character 'q' in string escape code"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err(), expected, "{text}");
        }
        assert_eq!(read(b"\x81").unwrap_err(), "invalid character '\\u0081' looking for beginning of value");
        assert!(read(br#"{"a": [1, -0.5e+3, true, null, "\u00e9\n"]}"#).is_ok());
    }

    #[test]
    fn what_is_too_deep_is_refused_however_deep_it_is() {
        for depth in [DEEPEST + 1, 1_000_000] {
            for open in ["[", "{\"a\":"] {
                assert_eq!(read(open.repeat(depth).as_bytes()).unwrap_err(), "exceeded max depth");
            }
        }
        assert_eq!(read("[".repeat(100).as_bytes()).unwrap_err(), CUT_SHORT);
    }
}
