use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn window(text: &str) -> Window {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn windows(texts: &[&str]) -> Windows {
    Windows(texts.iter().map(|text| window(text)).collect())
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn open(texts: &[&str], now: &str, until: &str) {
    let state = WindowState::Open { until: Some(time(until)) };
    assert_eq!(windows(texts).at(time(now)), state, "{texts:?} at {now}");
}

fn closed(texts: &[&str], now: &str, opens: &str) {
    let state = WindowState::Closed { opens: time(opens) };
    assert_eq!(windows(texts).at(time(now)), state, "{texts:?} at {now}");
}

fn always_open(texts: &[&str]) {
    for now in ["2027-03-01T12:34:56Z", "2027-10-31T01:00:00Z", "2012-02-29T00:00:00Z"] {
        assert_eq!(windows(texts).at(time(now)), WindowState::Open { until: None }, "{texts:?} at {now}");
    }
}

#[test]
fn windows_are_written_in_one_way() {
    for (text, written) in [
        ("Sat,Sun 22:00-04:00 Europe/Berlin", "Sat,Sun 22:00-04:00 Europe/Berlin"),
        ("22:00-04:00 UTC", "22:00-04:00 UTC"),
        ("  mon-fri\t9:00 - 17:30  america/new_york ", "Mon-Fri 09:00-17:30 America/New_York"),
        ("Sun, Sat 00:00-24:00 utc", "Sat,Sun 00:00-24:00 UTC"),
        ("Fri-Mon 22:00-00:00 UTC", "Mon,Fri-Sun 22:00-00:00 UTC"),
        ("Mon-Tue,Thu,Thu - Fri 01:00-02:00 UTC", "Mon,Tue,Thu,Fri 01:00-02:00 UTC"),
        ("Mon-Sun 01:00-02:00 UTC", "01:00-02:00 UTC"),
        ("Wed-Tue 01:00-02:00 Etc/GMT+5", "01:00-02:00 Etc/GMT+5"),
    ] {
        assert_eq!(window(text).to_string(), written, "{text}");
    }
}

#[test]
fn windows_are_told_with_when_they_open_or_close() {
    let now = time("2027-03-06T20:00:00Z");
    for (texts, told) in [
        (&[][..], None),
        (&["Sat 22:00-04:00 UTC"], Some("Sat 22:00-04:00 UTC: opens at Sat 06 Mar 22:00 UTC")),
        (
            &["Sat 20:00-04:00 Europe/Berlin"],
            Some("Sat 20:00-04:00 Europe/Berlin: open until Sun 07 Mar 04:00 CET"),
        ),
        (
            &["Sat 19:00-21:00 UTC", "Sun 05:00-06:00 UTC"],
            Some("Sat 19:00-21:00 UTC and Sun 05:00-06:00 UTC: open until Sat 06 Mar 21:00 UTC"),
        ),
        (&["00:00-24:00 UTC"], Some("00:00-24:00 UTC: always open")),
    ] {
        assert_eq!(windows(texts).describe(now).as_deref(), told, "{texts:?}");
    }
}

#[test]
fn what_is_not_a_window_is_refused_with_the_reason_and_an_example() {
    for (text, reason) in [
        ("", "no times"),
        ("Sat,Sun", "no times"),
        ("Sat,Sun Europe/Berlin", "no times"),
        ("22:00-04:00", "no time zone"),
        ("Sat,Sun 22:00 - 04:00", "no time zone"),
        ("22:00-04:00 Berlin", "\"Berlin\" is not the name of a time zone"),
        ("22:00-04:00 Etc/Unknown", "\"Etc/Unknown\" is not the name of a time zone"),
        ("22:00-04:00 +02:00", "\"+02:00\" is not the name of a time zone"),
        ("Saturday 22:00-04:00 UTC", "\"Saturday\" is not a day"),
        ("Sat Sun 22:00-04:00 UTC", "\"Sat Sun\" is not a day"),
        ("Mon-Wed-Fri 22:00-04:00 UTC", "\"Wed-Fri\" is not a day"),
        ("Sat, 22:00-04:00 UTC", "\"\" is not a day"),
        ("22:00 UTC", "\"22:00\" is not a range of times"),
        ("22-04 UTC", "\"22\" is not a time"),
        ("22:00-4:0 UTC", "\"4:0\" is not a time"),
        ("24:00-04:00 UTC", "\"24:00\" is not a time"),
        ("22:00-24:01 UTC", "\"24:01\" is not a time"),
        ("22:60-04:00 UTC", "\"22:60\" is not a time"),
        ("22:00-+4:00 UTC", "\"+4:00\" is not a time"),
        ("22:00-04:00:00 UTC", "\"04:00:00\" is not a time"),
        ("04:00-4:00 UTC", "starts and ends at 04:00"),
    ] {
        let refused = text.parse::<Window>().unwrap_err().to_string();
        assert!(refused.contains(reason), "{text}: {refused}");
        let (_, example) = refused.split_once("such as '").unwrap();
        assert!(example.trim_end_matches('\'').parse::<Window>().is_ok(), "{refused}");
    }
}

#[test]
fn windows_are_strings_in_json() {
    let list = windows(&["Sat,Sun 22:00-04:00 Europe/Berlin", "12:00-13:00 UTC"]);
    let json = serde_json::to_value(&list).unwrap();
    assert_eq!(json, serde_json::json!(["Sat,Sun 22:00-04:00 Europe/Berlin", "12:00-13:00 UTC"]));
    assert_eq!(serde_json::from_value::<Windows>(json).unwrap(), list);
    let refused = serde_json::from_str::<Windows>(r#"["22:00-04:00"]"#).unwrap_err().to_string();
    assert!(refused.contains("no time zone"), "{refused}");
}

#[test]
fn a_roll_without_windows_may_begin_nodes_at_any_time() {
    always_open(&[]);
    assert!(windows(&[]).is_empty());
}

#[test]
fn a_window_is_open_from_its_start_until_before_its_end() {
    let daily = &["22:00-04:00 UTC"];
    closed(daily, "2027-01-04T21:59:59.999Z", "2027-01-04T22:00:00Z");
    open(daily, "2027-01-04T22:00:00Z", "2027-01-05T04:00:00Z");
    open(daily, "2027-01-05T00:00:00Z", "2027-01-05T04:00:00Z");
    open(daily, "2027-01-05T03:59:59.999Z", "2027-01-05T04:00:00Z");
    closed(daily, "2027-01-05T04:00:00Z", "2027-01-05T22:00:00Z");
}

#[test]
fn days_are_those_on_which_a_window_opens() {
    // 2027-01-02 is a Saturday.
    let weekend = &["Sat,Sun 22:00-04:00 Europe/Berlin"];
    closed(weekend, "2027-01-01T22:00:00Z", "2027-01-02T21:00:00Z");
    open(weekend, "2027-01-04T02:59:00Z", "2027-01-04T03:00:00Z");
    closed(weekend, "2027-01-04T03:00:00Z", "2027-01-09T21:00:00Z");
}

#[test]
fn windows_that_overlap_or_adjoin_are_one_opening() {
    open(&["10:00-12:00 UTC", "12:00-14:00 UTC"], "2027-01-04T11:00:00Z", "2027-01-04T14:00:00Z");
    open(&["10:00-12:00 UTC", "11:00-14:00 UTC"], "2027-01-04T10:30:00Z", "2027-01-04T14:00:00Z");
    open(&["10:00-12:00 UTC", "09:00-14:00 UTC"], "2027-01-04T10:30:00Z", "2027-01-04T14:00:00Z");
    open(&["10:00-12:00 UTC", "12:01-14:00 UTC"], "2027-01-04T10:30:00Z", "2027-01-04T12:00:00Z");
    closed(&["Wed 10:00-12:00 UTC", "Tue 12:00-14:00 UTC"], "2027-01-04T10:30:00Z", "2027-01-05T12:00:00Z");
    open(&["Sat,Sun 00:00-24:00 Europe/Berlin"], "2027-01-02T10:00:00Z", "2027-01-03T23:00:00Z");
    open(&["12:00-00:00 UTC", "00:00-02:00 UTC"], "2027-01-04T13:00:00Z", "2027-01-05T02:00:00Z");
}

#[test]
fn windows_that_cover_all_hours_do_not_close() {
    always_open(&["00:00-24:00 Europe/Berlin"]);
    always_open(&["06:00-18:00 Europe/Berlin", "18:00-06:00 Europe/Berlin"]);
    always_open(&["Mon-Fri 00:00-24:00 UTC", "Sat,Sun 00:00-24:00 UTC"]);
    always_open(&["02:30-02:29 Europe/Berlin", "02:00-03:00 Europe/Berlin"]);
}

#[test]
fn windows_of_two_zones_may_close_in_the_weeks_between_their_clock_changes() {
    // New York is six hours behind Berlin, and five from 14 to 28 March 2027.
    let texts = &["06:00-18:00 Europe/Berlin", "12:00-00:00 America/New_York"];
    open(texts, "2027-03-01T12:00:00Z", "2027-03-15T04:00:00Z");
    closed(texts, "2027-03-15T04:00:00Z", "2027-03-15T05:00:00Z");
}

// In Berlin, clocks are set from 02:00 to 03:00 on 28 March 2027, and from 03:00 to 02:00 on 31 October 2027: Sundays.

#[test]
fn a_window_over_a_clock_change_is_an_hour_shorter_or_longer() {
    let night = &["Sat,Sun 22:00-04:00 Europe/Berlin"];
    open(night, "2027-03-27T21:00:00Z", "2027-03-28T02:00:00Z");
    closed(night, "2027-03-28T02:00:00Z", "2027-03-28T20:00:00Z");
    open(night, "2027-10-30T20:00:00Z", "2027-10-31T03:00:00Z");
}

#[test]
fn a_time_that_clocks_skip_is_the_instant_of_the_change() {
    closed(&["Sun 02:30-05:00 Europe/Berlin"], "2027-03-28T00:59:59Z", "2027-03-28T01:00:00Z");
    open(&["Sun 02:30-05:00 Europe/Berlin"], "2027-03-28T01:00:00Z", "2027-03-28T03:00:00Z");
    open(&["Sat 22:00-02:30 Europe/Berlin"], "2027-03-27T21:00:00Z", "2027-03-28T01:00:00Z");
    closed(&["Sun 02:15-02:45 Europe/Berlin"], "2027-03-27T21:00:00Z", "2027-04-04T00:15:00Z");
    closed(&["Sun 02:15-02:45 Europe/Berlin"], "2027-03-21T01:45:00Z", "2027-04-04T00:15:00Z");
}

#[test]
fn of_a_time_that_clocks_show_twice_the_first_counts() {
    closed(&["Sun 02:30-05:00 Europe/Berlin"], "2027-10-31T00:29:00Z", "2027-10-31T00:30:00Z");
    open(&["Sun 02:30-05:00 Europe/Berlin"], "2027-10-31T01:10:00Z", "2027-10-31T04:00:00Z");
    open(&["Sat 22:00-02:30 Europe/Berlin"], "2027-10-30T20:00:00Z", "2027-10-31T00:30:00Z");
    closed(&["Sat 22:00-02:30 Europe/Berlin"], "2027-10-31T01:10:00Z", "2027-11-06T21:00:00Z");
}

#[test]
fn a_window_on_a_day_that_a_zone_skipped_ends_on_the_next() {
    // Apia had no Friday 30 December 2011.
    let texts = &["Fri 22:00-04:00 Pacific/Apia"];
    closed(texts, "2011-12-30T09:59:00Z", "2011-12-30T10:00:00Z");
    open(texts, "2011-12-30T10:00:00Z", "2011-12-30T14:00:00Z");
}

#[test]
fn an_opening_goes_on_when_clocks_are_set_back_past_midnight() {
    // In St. John's, clocks were set from 00:01 on Sunday 7 November 2010 to 23:01 on Saturday.
    open(&["Sun 00:00-01:00 America/St_Johns"], "2010-11-07T03:00:00Z", "2010-11-07T04:30:00Z");
}

#[test]
fn the_ends_of_all_time_are_no_panic() {
    for texts in
        [&["00:00-24:00 UTC"], &["Mon 22:00-04:00 Pacific/Apia"], &["Sat 12:00-13:00 America/New_York"]]
    {
        for now in [Timestamp::MIN, Timestamp::MAX] {
            windows(texts).at(now);
        }
    }
}

/// Zones with clock changes of an hour, of half an hour, of a day, at midnight and past it, and without any.
const ZONES: [&str; 10] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Casey",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
];

fn any_window() -> impl Strategy<Value = Window> {
    let days = prop_oneof![Just(127_u8), 1..=127_u8];
    // Most clocks change in the first hours of a day.
    let minute = || prop_oneof![(0..24_i64).prop_map(|hour| hour * 60), 0..4 * 60_i64, 0..MINUTES_PER_DAY];
    let end = prop_oneof![1 => Just(MINUTES_PER_DAY), 9 => minute()];
    (days, minute(), end, select(&ZONES)).prop_filter_map("no time", |(days, start, end, zone)| {
        let (start, end, zone) = (TimeOfDay(start), TimeOfDay(end), parse_zone(zone)?);
        (start != end).then_some(Window { days: Days(days), start, end, zone })
    })
}

/// Whether a clock that shows this is in the window.
fn includes(window: &Window, clock: DateTime) -> bool {
    let minute = i64::from(clock.hour()) * 60 + i64::from(clock.minute());
    let (start, end) = (window.start.0, window.end.0);
    let opens = |date: Date| window.days.contains(date.weekday());
    if start < end {
        opens(clock.date()) && (start..end).contains(&minute)
    } else {
        opens(clock.date()) && minute >= start || opens(clock.date().yesterday().unwrap()) && minute < end
    }
}

/// The state, found by looking at a clock of each zone that is never set back, minute by minute, from two days before `now`
/// to eight after; and when it changes, if it does.
fn state_by_clocks(list: &[Window], now: Timestamp) -> (bool, Option<Timestamp>) {
    let minute = SignedDuration::from_mins(1);
    let mut time = now - 2 * 24 * 60 * minute;
    let mut clocks: Vec<DateTime> = list.iter().map(|window| window.zone.to_datetime(time)).collect();
    let mut state = None;
    while time < now + 8 * 24 * 60 * minute {
        for (clock, window) in clocks.iter_mut().zip(list) {
            *clock = window.zone.to_datetime(time).max(*clock);
        }
        let is_open = || clocks.iter().zip(list).any(|(clock, window)| includes(window, *clock));
        if time >= now && *state.get_or_insert_with(is_open) != is_open() {
            return (!is_open(), Some(time));
        }
        time += minute;
    }
    (state.unwrap(), None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn windows_are_open_when_clocks_are_in_one(
        list in proptest::collection::vec(any_window(), 1..4),
        minutes in 18_000_000..30_000_000_i64,
        near_change in proptest::option::weighted(0.9, -30 * 60..3 * 60_i64),
    ) {
        let random = Timestamp::from_second(minutes * 60).unwrap();
        let change = list[0].zone.following(random).next().zip(near_change);
        let now = change.map_or(random, |(change, minutes)| change.timestamp() + SignedDuration::from_mins(minutes));
        let end = now + SignedDuration::from_hours(8 * 24);
        let state = Windows(list.clone()).at(now);
        match state_by_clocks(&list, now) {
            (true, Some(until)) => prop_assert_eq!(state, WindowState::Open { until: Some(until) }),
            (false, Some(opens)) => prop_assert_eq!(state, WindowState::Closed { opens }),
            (true, None) => {
                let stays_open = matches!(state, WindowState::Open { until } if until.is_none_or(|until| until >= end));
                prop_assert!(stays_open, "{:?}", state);
            }
            (false, None) => {
                let stays_closed = matches!(state, WindowState::Closed { opens } if opens >= end);
                prop_assert!(stays_closed, "{:?}", state);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_written_window_is_the_same_when_it_is_read(window in any_window()) {
        prop_assert_eq!(window.to_string().parse(), Ok(window));
    }

    #[test]
    fn no_text_is_a_panic(text in any::<String>()) {
        let _ = text.parse::<Window>();
    }

    #[test]
    fn no_pieces_of_windows_are_a_panic(
        pieces in proptest::collection::vec(select(&[
            " ", "Sat", "Sun", "Mon-Fri", ",", "-", ":", "22:00", "04:00", "24:00", "0", "9", "99", "UTC", "Europe/Berlin", "é", "\u{a0}", "٣",
        ][..]), 0..10),
        seconds in -377_705_023_201..253_402_207_200_i64,
    ) {
        if let Ok(window) = pieces.concat().parse::<Window>() {
            prop_assert_eq!(window.to_string().parse(), Ok(window.clone()));
            Windows(vec![window]).at(Timestamp::from_second(seconds).unwrap());
        }
    }
}

#[test]
fn a_roll_waits_for_a_window_only_if_one_stays_open_for_as_long_as_the_slowest_node_took() {
    let minutes = SignedDuration::from_mins;
    let monday: Timestamp = "2026-03-02T00:00:00Z".parse().unwrap();
    for (texts, slowest, starts) in [
        (&["13:00-14:00 UTC"][..], 0, true),
        (&["13:00-14:00 UTC"], 60, true),
        (&["13:00-14:00 UTC"], 61, false),
        (&["13:00-14:00 UTC", "14:00-15:00 UTC"], 61, true),
        (&["13:00-14:00 UTC", "Sun 22:00-04:00 UTC"], 300, true),
        (&["13:00-14:00 UTC", "Sun 22:00-04:00 UTC"], 361, false),
        (&["00:00-24:00 UTC"], 5000, true),
    ] {
        let windows = Windows(texts.iter().map(|text| text.parse().unwrap()).collect());
        let times = (0..14 * 24 * 4).map(|quarter| monday + minutes(15 * quarter));
        let said: Vec<Option<String>> = times.map(|now| windows.closed(now, minutes(slowest))).collect();
        assert_eq!(said.iter().any(Option::is_none), starts, "{texts:?} {slowest}");
        let is_final = |why: &&String| why.starts_with("no window stays open for ");
        let (last, all) = (said.iter().flatten().filter(is_final).count(), said.iter().flatten().count());
        assert_eq!(
            last,
            if starts { 0 } else { all },
            "{texts:?} {slowest}: {:?}",
            said.iter().flatten().next()
        );
    }
}
