//! Windows: when a roll may begin a node, such as `Sat,Sun 22:00-04:00 Europe/Berlin`.
//!
//! A window starts or ends at the first instant at which the clocks of its time zone show that time or a later one. If
//! clocks are set forward past it, that is the instant of the change; if clocks are set back and show it twice, the first
//! time counts. A window that clocks skip altogether does not open that day. Windows that overlap or adjoin are one opening.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::args::duration;

/// Windows that stay open for this long never close: clocks change in the same way every year.
const HORIZON: SignedDuration = SignedDuration::from_hours(366 * 24);

/// The dates, in days from today, of openings that can be under way. If clocks are set back past midnight, those of tomorrow
/// can be.
const UNDER_WAY: RangeInclusive<i64> = -1..=1;

/// The dates, in days from today, of openings that can be the next: clocks can skip a weekly window once.
const UPCOMING: RangeInclusive<i64> = 0..=14;

const MINUTES_PER_DAY: i64 = 24 * 60;

/// Hours of some days of the week in a time zone. It opens on these days, and closes the day after if its end is not after
/// its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    days: Days,
    start: TimeOfDay,
    end: TimeOfDay,
    zone: TimeZone,
}

impl Window {
    /// The openings that begin on local dates relative to that of `now`.
    fn openings(&self, now: Timestamp, dates: RangeInclusive<i64>) -> impl Iterator<Item = Range<Timestamp>> {
        let today = self.zone.to_datetime(now).date();
        dates.filter_map(move |days| {
            self.opening(today.checked_add(SignedDuration::from_hours(24 * days)).ok()?)
        })
    }

    fn opening(&self, date: Date) -> Option<Range<Timestamp>> {
        if !self.days.contains(date.weekday()) {
            return None;
        }
        let start = self.first_instant(self.start.on(date)?)?;
        let last_date = if self.end > self.start { date } else { date.tomorrow().ok()? };
        let end = self.first_instant(self.end.on(last_date)?)?;
        (start < end).then_some(start..end)
    }

    /// The first instant at which the clocks of the time zone show `local` or later.
    fn first_instant(&self, local: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(local).ok()
            }
            AmbiguousOffset::Gap { after, .. } => {
                let before_change = after.to_timestamp(local).ok()?;
                self.zone.following(before_change).next().map(|change| change.timestamp())
            }
        }
    }
}

/// An invalid window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; expected a window such as 'Sat,Sun 22:00-04:00 Europe/Berlin'")]
pub struct InvalidWindow(WindowProblem);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum WindowProblem {
    #[error("the window has no times")]
    NoTimes,
    #[error("the window has no time zone")]
    NoZone,
    #[error("{0:?} is not a day (Mon, Tue, Wed, Thu, Fri, Sat, Sun) or a range of days")]
    NotADay(String),
    #[error("{0:?} is not a range of times")]
    NotARange(String),
    #[error("{0:?} is not a time from 00:00 to 23:59, or 24:00 as the end")]
    NotATime(String),
    #[error("{0:?} is not the name of a time zone")]
    NotAZone(String),
    #[error("the window starts and ends at {0} (a whole day is 00:00-24:00)")]
    Empty(TimeOfDay),
}

impl FromStr for Window {
    type Err = InvalidWindow;

    fn from_str(text: &str) -> Result<Self, InvalidWindow> {
        parse(text.trim()).map_err(InvalidWindow)
    }
}

fn parse(text: &str) -> Result<Window, WindowProblem> {
    let is_digit = |c: char| c.is_ascii_digit();
    let (days, rest) = text.split_at(text.find(is_digit).ok_or(WindowProblem::NoTimes)?);
    let (times, zone) = rest
        .rsplit_once(char::is_whitespace)
        .filter(|(_, zone)| !zone.starts_with(is_digit))
        .ok_or(WindowProblem::NoZone)?;
    let (start, end) =
        times.split_once('-').ok_or_else(|| WindowProblem::NotARange(times.trim().to_owned()))?;
    let window = Window {
        days: Days::parse(days.trim())?,
        start: TimeOfDay::parse(start.trim(), MINUTES_PER_DAY - 1)?,
        end: TimeOfDay::parse(end.trim(), MINUTES_PER_DAY)?,
        zone: parse_zone(zone).ok_or_else(|| WindowProblem::NotAZone(zone.to_owned()))?,
    };
    if window.start == window.end { Err(WindowProblem::Empty(window.start)) } else { Ok(window) }
}

/// A time zone by its name in the IANA database, which is part of the program.
fn parse_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok().filter(|zone| zone.iana_name().is_some())
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != Days::ALL {
            write!(f, "{} ", self.days)?;
        }
        write!(f, "{}-{} {}", self.start, self.end, self.zone.iana_name().unwrap_or_default())
    }
}

impl TryFrom<String> for Window {
    type Error = InvalidWindow;

    fn try_from(text: String) -> Result<Self, InvalidWindow> {
        text.parse()
    }
}

impl From<Window> for String {
    fn from(window: Window) -> Self {
        window.to_string()
    }
}

/// Days of the week, a bit for each; the lowest one is Monday.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Days(u8);

impl Days {
    const ALL: Self = Self(0b111_1111);
    const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

    fn contains(self, day: Weekday) -> bool {
        self.has(usize::from(day.to_monday_zero_offset().unsigned_abs()))
    }

    fn has(self, day: usize) -> bool {
        self.0 & (1 << day) != 0
    }

    /// Parses days and ranges of them, such as `Mon-Wed,Sat`. Without any, all days are meant.
    fn parse(text: &str) -> Result<Self, WindowProblem> {
        if text.is_empty() {
            return Ok(Self::ALL);
        }
        let mut days = 0;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (Self::parse_day(first.trim())?, Self::parse_day(last.trim())?);
            for days_later in 0..=(last + 7 - first) % 7 {
                days |= 1 << ((first + days_later) % 7);
            }
        }
        Ok(Self(days))
    }

    fn parse_day(text: &str) -> Result<usize, WindowProblem> {
        let day = Self::NAMES.iter().position(|name| name.eq_ignore_ascii_case(text));
        day.ok_or_else(|| WindowProblem::NotADay(text.to_owned()))
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut parts, mut day) = (Vec::new(), 0);
        while day < 7 {
            let run = (day..7).take_while(|day| self.has(*day)).count();
            let names = &Self::NAMES[day..day + run];
            match names {
                [first, _, .., last] => parts.push(format!("{first}-{last}")),
                _ => parts.extend(names.iter().map(ToString::to_string)),
            }
            day += run.max(1);
        }
        f.write_str(&parts.join(","))
    }
}

/// Minutes since midnight on a clock, at most 24:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimeOfDay(i64);

impl TimeOfDay {
    fn parse(text: &str, latest: i64) -> Result<Self, WindowProblem> {
        let number = |text: &str, digits: RangeInclusive<usize>| {
            let is_number = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<i64>().ok().filter(|_| is_number)
        };
        let time = text.split_once(':').and_then(|(hours, minutes)| {
            let minutes = number(minutes, 2..=2).filter(|minutes| *minutes < 60)?;
            Some(number(hours, 1..=2)? * 60 + minutes)
        });
        let time = time.filter(|time| *time <= latest);
        time.map(Self).ok_or_else(|| WindowProblem::NotATime(text.to_owned()))
    }

    fn on(self, date: Date) -> Option<DateTime> {
        date.to_datetime(Time::midnight()).checked_add(SignedDuration::from_mins(self.0)).ok()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// All windows of a roll. It may begin nodes in each of them, and at any time if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows(pub Vec<Window>);

/// Whether windows are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// Until this time; none if they do not close.
    Open {
        /// When they close.
        until: Option<Timestamp>,
    },
    /// Until they open at this time.
    Closed {
        /// When the first of them opens.
        opens: Timestamp,
    },
}

impl Windows {
    /// Whether nodes may start at any time.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nodes may start at this time.
    pub fn at(&self, now: Timestamp) -> WindowState {
        if self.is_empty() {
            return WindowState::Open { until: None };
        }
        let horizon = now.checked_add(HORIZON).unwrap_or(Timestamp::MAX);
        let mut until = now;
        while let Some(end) = self.end_of_opening(until) {
            if end >= horizon {
                return WindowState::Open { until: None };
            }
            until = end;
        }
        if until > now {
            WindowState::Open { until: Some(until) }
        } else {
            WindowState::Closed { opens: self.next_opening(now) }
        }
    }

    /// Why no node may begin now; none if one may. `slowest` is how long the slowest node has taken.
    pub fn closed(&self, now: Timestamp, slowest: SignedDuration) -> Option<String> {
        match self.at(now) {
            WindowState::Open { until: None } => None,
            WindowState::Open { until: Some(until) } if until.duration_since(now) >= slowest => None,
            _ if !self.open_for(slowest, now) => Some(format!(
                "no window stays open for {}, which the slowest node so far took: abort the roll, and start a new one for the other \
                 nodes",
                duration::show(slowest.unsigned_abs())
            )),
            WindowState::Closed { opens } => Some(format!("the window opens at {}", self.show(opens))),
            WindowState::Open { until: Some(until) } => Some(format!(
                "the window closes at {}, and the slowest node so far took {}: waits for the next window",
                self.show(until),
                duration::show(slowest.unsigned_abs())
            )),
        }
    }

    /// Whether one of the next openings is as long as this.
    pub fn open_for(&self, length: SignedDuration, now: Timestamp) -> bool {
        let days = SignedDuration::from_hours(24 * UPCOMING.end());
        let last = now.checked_add(days).unwrap_or(Timestamp::MAX);
        let mut closed = now;
        while closed < last {
            let opens = match self.at(closed) {
                WindowState::Closed { opens } => opens,
                // The rest of an opening that is too short.
                WindowState::Open { until: Some(until) } => {
                    closed = until;
                    continue;
                }
                WindowState::Open { until: None } => return true,
            };
            closed = match self.at(opens) {
                WindowState::Open { until: Some(until) } if until.duration_since(opens) < length => until,
                _ => return true,
            };
        }
        false
    }

    /// The windows, and when they open or close; none if there are no windows.
    pub fn describe(&self, now: Timestamp) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let windows: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let state = match self.at(now) {
            WindowState::Closed { opens } => format!("opens at {}", self.show(opens)),
            WindowState::Open { until: Some(until) } => format!("open until {}", self.show(until)),
            WindowState::Open { until: None } => String::from("always open"),
        };
        Some(format!("{}: {state}", windows.join(" and ")))
    }

    /// A time as the clocks of the windows' time zone show it.
    pub(crate) fn show(&self, time: Timestamp) -> String {
        let zone = self.0.first().map_or(TimeZone::UTC, |window| window.zone.clone());
        time.to_zoned(zone).strftime("%a %d %b %H:%M %Z").to_string()
    }

    /// When the last of the openings that are under way at this time ends.
    fn end_of_opening(&self, time: Timestamp) -> Option<Timestamp> {
        let openings = self.0.iter().flat_map(|window| window.openings(time, UNDER_WAY));
        openings.filter(|opening| opening.contains(&time)).map(|opening| opening.end).max()
    }

    fn next_opening(&self, now: Timestamp) -> Timestamp {
        let openings = self.0.iter().flat_map(|window| window.openings(now, UPCOMING));
        let starts = openings.map(|opening| opening.start).filter(|start| *start > now);
        // There is always one, except at the end of all time.
        starts.min().unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
#[path = "roll_window_tests.rs"]
mod tests;
