//! Values on the command line: booleans, names, durations and the flags of a drain.

pub mod drain_flags;
pub mod duration;
pub mod hook;
pub mod names;

use std::fmt::Display;
use std::str::FromStr;

/// Parses a whole number.
///
/// # Errors
///
/// If the text is none, or none that fits the type.
pub fn whole_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| String::from("expected a whole number"))
}

/// A parser of whole numbers that are at least `least`.
pub fn at_least<T>(least: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number = whole_number(text).ok().filter(|number| *number >= least);
        number.ok_or_else(|| format!("expected a whole number, at least {least}"))
    }
}

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
