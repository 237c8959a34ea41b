//! Booleans as Go's flags read them.

/// Reads a boolean.
///
/// # Errors
///
/// When it is none.
pub(crate) fn parse(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(String::from("it is neither true nor false")),
    }
}
