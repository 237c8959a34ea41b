//! Times that are still passing, for columns.

/// Two units always, so that the unit does not change with every second or minute that happens to be even: `5m00s`, where
/// [`age`](nm_core::args::duration::age) has `5m` for one second.
pub(crate) fn elapsed(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ if days < 100 => format!("{days}d{:02}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_still_passing_keeps_its_units_while_it_grows() {
        for (seconds, expected) in [
            (-1, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (119, "1m59s"),
            (120, "2m00s"),
            (300, "5m00s"),
            (601, "10m01s"),
            (3599, "59m59s"),
            (3600, "1h00m"),
            (86_399, "23h59m"),
            (86_400, "1d00h"),
            (99 * 86_400, "99d00h"),
            (100 * 86_400, "100d"),
        ] {
            assert_eq!(elapsed(seconds), expected, "{seconds}");
            assert!(expected.len() <= 6, "a column has six characters");
        }
    }
}
