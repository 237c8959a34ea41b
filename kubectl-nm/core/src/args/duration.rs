//! Durations as kubectl reads and prints them: Go's `1h30m`, and ages such as `3h12m`.

use std::time::Duration;

use jiff::Timestamp;

/// Longest text that is parsed, and most digits of a number in it: with both, no sum overflows.
const MAX_TEXT: usize = 32;
const MAX_DIGITS: usize = 15;

/// The longest duration that Go has, about 292 years.
const MAX_DURATION: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

const EXPECTED: &str = "expected a duration such as 30s, 5m or 1h30m";

/// Parses a duration as Go does: `30s`, `5m`, `1h30m`, `1.5h`, `500ms`, `0`.
///
/// kube's parser panics on numbers that overflow and on signs inside, and reads an empty text as zero. So these are refused
/// before it is called.
///
/// # Errors
///
/// If the text is not a Go duration, is negative, or is longer than about 292 years.
pub fn parse(text: &str) -> Result<Duration, String> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    if text.starts_with('-') {
        return Err(String::from("a duration cannot be negative"));
    }
    if unsigned.is_empty() || !unsigned.chars().all(|c| is_number(c) || c.is_alphabetic()) {
        return Err(String::from(EXPECTED));
    }
    if unsigned.len() > MAX_TEXT || unsigned.split(|c| !is_number(c)).any(|number| number.len() > MAX_DIGITS)
    {
        return Err(String::from("the duration is too long"));
    }
    let duration = unsigned.parse::<kube::core::Duration>().map_err(|_| String::from(EXPECTED))?;
    let duration = Duration::from(duration);
    if duration > MAX_DURATION { Err(String::from("the duration is too long")) } else { Ok(duration) }
}

pub(crate) fn parse_or_seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).or_else(|_| parse(text))
}

/// Formats a duration the way [`parse`] reads it: `1h30m`; 90 seconds are `1m30s`.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let part = |amount: u64, unit: &str| if amount > 0 { format!("{amount}{unit}") } else { String::new() };
    let shown = format!(
        "{}{}{}{}",
        part(seconds / 3600, "h"),
        part(seconds / 60 % 60, "m"),
        part(seconds % 60, "s"),
        part(u64::from(duration.subsec_millis()), "ms")
    );
    if shown.is_empty() { String::from("0s") } else { shown }
}

/// Formats an age as kubectl's tables do: at most two units, the smaller one only for short ages. From a minute on, it has minutes,
/// as [`show`] does: `1m41s`, where kubectl has `101s`.
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, fine: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{fine}") }
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// How a sentence states when something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeStyle {
    /// `12m ago`, as seen from this time.
    Ago(Timestamp),
    /// `at 2026-01-02T03:04:05Z`, in what is kept and read later.
    At,
}

impl TimeStyle {
    /// The words for this time.
    pub fn words(self, at: Timestamp) -> String {
        match self {
            Self::Ago(now) => format!("{} ago", age(now.duration_since(at).as_secs())),
            Self::At => format!("at {at:.0}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed_and_formatted() {
        for (text, milliseconds, formatted) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("30s", 30_000, "30s"),
            ("90s", 90_000, "1m30s"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("1.5h", 5_400_000, "1h30m"),
            ("+2s500ms", 2_500, "2s500ms"),
            ("1000\u{b5}s1000\u{3bc}s", 2, "2ms"),
        ] {
            let duration = parse(text).unwrap();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(show(duration), formatted, "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", EXPECTED),
            ("+", EXPECTED),
            ("30", EXPECTED),
            ("1h30", EXPECTED),
            ("-5s", "negative"),
            ("5 m", EXPECTED),
            ("1h-3s", EXPECTED),
            ("1d", EXPECTED),
            ("m", EXPECTED),
            ("1.2.3s", EXPECTED),
            ("infs", EXPECTED),
            ("99999999999999999999h", "too long"),
            (&"999999999999999h".repeat(9), "too long"),
            (&"999999999999999h".repeat(2), "too long"),
            ("999999999999999h", "too long"),
            ("2562047h47m16.9s", "too long"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        assert!(parse("2562047h47m16.8s").is_ok(), "the longest that Go has");
    }

    #[test]
    fn request_timeouts_may_be_plain_seconds() {
        assert_eq!(parse_or_seconds("7"), Ok(Duration::from_secs(7)));
        assert_eq!(parse_or_seconds("7m"), Ok(Duration::from_secs(420)));
        assert!(parse_or_seconds("-7").is_err());
    }

    #[test]
    fn ages_have_two_units_at_most() {
        for (seconds, shown) in [
            (-3, "0s"),
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (101, "1m41s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (18_300, "5h5m"),
            (30_000, "8h"),
            (172_800, "2d"),
            (200_000, "2d7h"),
            (800_000, "9d"),
            (70_000_000, "2y80d"),
            (300_000_000, "9y"),
        ] {
            assert_eq!(age(seconds), shown, "{seconds}");
        }
    }
}
