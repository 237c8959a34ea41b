//! How fast a replay is, and whether it is paused.

use std::time::Duration;

use jiff::SignedDuration;

/// The speeds of the keys.
const SPEEDS: [f64; 12] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

/// The slowest and the fastest speed.
const LIMITS: (f64, f64) = (SPEEDS[0], SPEEDS[SPEEDS.len() - 1]);

/// Speed of a replay, and whether it is paused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    pub(crate) speed: f64,
    pub(crate) is_paused: bool,
}

impl Pace {
    /// A replay that runs at this speed, where 1 is real time.
    pub fn new(speed: f64) -> Self {
        Self { speed, is_paused: false }
    }

    pub(crate) fn faster(&mut self) {
        self.speed = SPEEDS.into_iter().find(|speed| *speed > self.speed).unwrap_or(LIMITS.1);
    }

    pub(crate) fn slower(&mut self) {
        self.speed = SPEEDS.into_iter().rev().find(|speed| *speed < self.speed).unwrap_or(LIMITS.0);
    }

    /// How much recorded time passes in this time.
    pub(crate) fn recorded(&self, elapsed: Duration) -> SignedDuration {
        if self.is_paused {
            return SignedDuration::ZERO;
        }
        // A computer that slept for years does not matter.
        SignedDuration::try_from_secs_f64(elapsed.as_secs_f64() * self.speed).unwrap_or(SignedDuration::MAX)
    }
}

/// Parses a speed such as `10` or `0.5`.
///
/// # Errors
///
/// If the text is not a number from 0.25 to 1000.
pub fn parse_speed(text: &str) -> Result<f64, String> {
    let (slowest, fastest) = LIMITS;
    match text.strip_suffix('x').unwrap_or(text).parse::<f64>() {
        Ok(speed) if (slowest..=fastest).contains(&speed) => Ok(speed),
        _ => Err(format!("a speed is a number from {slowest} to {fastest}, such as 10")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_number_within_limits() {
        for (text, speed) in
            [("10", Some(10.0)), ("0.5", Some(0.5)), ("20x", Some(20.0)), ("1000", Some(1000.0))]
        {
            assert_eq!(parse_speed(text).ok(), speed, "{text}");
        }
        for text in ["", "0", "-1", "1001", "NaN", "inf", "fast", "1e9"] {
            assert!(parse_speed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_change_the_speed_in_steps_and_stop_at_the_limits() {
        let mut pace = Pace::new(3.0);
        pace.faster();
        assert_eq!(pace, Pace::new(5.0));
        pace.slower();
        assert_eq!(pace, Pace::new(2.0));
        (0..20).for_each(|_| pace.faster());
        assert_eq!(pace, Pace::new(LIMITS.1));
        (0..20).for_each(|_| pace.slower());
        assert_eq!(pace, Pace::new(LIMITS.0));
    }

    #[test]
    fn time_passes_as_fast_as_asked_and_not_during_a_pause() {
        let mut pace = Pace::new(10.0);
        assert_eq!(pace.recorded(Duration::from_millis(250)), SignedDuration::from_millis(2500));
        assert_eq!(pace.recorded(Duration::MAX), SignedDuration::MAX);
        pace.is_paused = true;
        assert_eq!(pace.recorded(Duration::from_secs(1)), SignedDuration::ZERO);
    }
}
