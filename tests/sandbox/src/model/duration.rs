//! Durations such as `200ms`, `1s` or `2m`.

use std::time::Duration;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration: write 200ms, 1s, 2m or 1h")]
pub struct NotADuration(String);

/// Parses a whole number with a unit.
///
/// # Errors
/// When the text is anything else, or too long to count in milliseconds.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let error = || NotADuration(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
    let (number, unit) = text.split_at(digits);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(error()),
    };
    let number: u64 = number.parse().map_err(|_| error())?;
    let total = number.checked_mul(milliseconds).ok_or_else(error)?;
    Ok(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(parse(text).ok(), expected.map(Duration::from_millis), "{text}");
        };
        check("200ms", Some(200));
        check("1s", Some(1_000));
        check("2m", Some(120_000));
        check("1h", Some(3_600_000));
        check("0s", Some(0));
        check("1", None);
        check("s", None);
        check("", None);
        check("-1s", None);
        check("1.5s", None);
        check("99999999999999999999h", None);
        check("18446744073709551615h", None);
    }
}
