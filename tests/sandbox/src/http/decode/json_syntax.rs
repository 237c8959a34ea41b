//! JSON parsing, and values as Go writes and names them.

use serde_json::Value;

/// Parses JSON.
///
/// # Errors
/// The message of Go for a text that ends too early; other messages are those of the parser.
pub(crate) fn read(text: &[u8]) -> Result<Value, String> {
    let message = |error: serde_json::Error| {
        if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
    };
    serde_json::from_slice(text).map_err(message)
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
