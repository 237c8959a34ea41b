//! Durations as kubectl reads and writes them: Go's `1h30m`, and ages such as `3h12m`.

use std::time::Duration;

/// Reads a duration as Go does: `30s`, `5m`, `1h30m`, `1.5h`, `500ms`, `0`.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(format!("\"{text}\" is negative"));
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(String::from("it is empty"));
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(unit_at);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, remaining) = after.split_at(unit_end);
        let number: f64 =
            number.parse().map_err(|_| format!("\"{text}\" is no duration, 5m or 1h30m are"))?;
        seconds += number * seconds_in(unit).ok_or_else(|| unit_error(text, unit))?;
        rest = remaining;
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("\"{text}\" is too long"))
}

/// Reads `--request-timeout`, which beside [`parse`]'s durations takes a bare number of seconds.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn parse_or_seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).or_else(|_| parse(text))
}

fn seconds_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

fn unit_error(text: &str, unit: &str) -> String {
    if unit.is_empty() {
        format!("\"{text}\" lacks a unit, as in {text}s")
    } else {
        format!("\"{unit}\" in \"{text}\" is no unit of time; ms, s, m and h are")
    }
}

/// Writes a duration the way [`parse`] reads it: `1h30m`, `90s` as `1m30s`.
pub(crate) fn show(duration: Duration) -> String {
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

/// An age as kubectl's tables show it: two units at most, the finer one only while it matters.
pub(crate) fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, fine: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{fine}") }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read_and_shown() {
        for (text, milliseconds, shown) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("30s", 30_000, "30s"),
            ("90s", 90_000, "1m30s"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("1.5h", 5_400_000, "1h30m"),
            ("+2s500ms", 2_500, "2s500ms"),
        ] {
            let duration = parse(text).unwrap();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(show(duration), shown, "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_with_a_reason() {
        for (text, complaint) in [
            ("", "it is empty"),
            ("30", "\"30\" lacks a unit, as in 30s"),
            ("-5s", "\"-5s\" is negative"),
            ("5 m", "\" m\" in \"5 m\" is no unit of time; ms, s, m and h are"),
            ("1d", "\"d\" in \"1d\" is no unit of time; ms, s, m and h are"),
            ("m", "\"m\" is no duration, 5m or 1h30m are"),
            ("1.2.3s", "\"1.2.3s\" is no duration, 5m or 1h30m are"),
            ("99999999999999999999h", "\"99999999999999999999h\" is too long"),
        ] {
            assert_eq!(parse(text).unwrap_err(), complaint);
        }
    }

    #[test]
    fn request_timeouts_may_be_bare_seconds() {
        assert_eq!(parse_or_seconds("7"), Ok(Duration::from_secs(7)));
        assert_eq!(parse_or_seconds("7m"), Ok(Duration::from_secs(420)));
        assert!(parse_or_seconds("-7").is_err());
    }

    #[test]
    fn ages_look_as_in_kubectl() {
        for (seconds, shown) in [
            (-3, "0s"),
            (0, "0s"),
            (119, "119s"),
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
