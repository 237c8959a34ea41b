//! Values on the command line: booleans, names, durations and the flags of a drain.

pub(crate) mod drain_flags;
pub(crate) mod duration;
pub(crate) mod names;

/// Parses a boolean in the spellings that Go's flags accept.
pub(crate) fn parse_boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(String::from("expected true or false")),
    }
}
