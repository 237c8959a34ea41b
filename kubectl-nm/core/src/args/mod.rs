//! Values on the command line: booleans, names, durations and the flags of a drain.

pub mod drain_flags;
pub mod duration;
pub mod names;

/// Parses a boolean in the spellings that Go's flags accept.
///
/// # Errors
///
/// If the text is none of these spellings.
pub fn parse_boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(String::from("expected true or false")),
    }
}
