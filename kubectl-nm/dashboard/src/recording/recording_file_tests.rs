use std::io::Cursor;

use jiff::Timestamp;
use nm_core::error::Failure;

use super::recording_file::{Due, RecordingFile};
use crate::recording::error::RecordingError;

const HEADER: &str = r#"{"recording":1,"program":"0.1.0","started":"2026-01-02T03:00:00Z","context":"prod"}"#;

fn open(text: &str) -> Result<RecordingFile, RecordingError> {
    RecordingFile::read(Box::new(Cursor::new(text.as_bytes().to_vec())), String::from("night.ndjson"))
}

fn idle(time: &str) -> String {
    format!(r#"{{"time":"2026-01-02T03:{time}Z","message":"idle"}}"#)
}

fn times(file: &mut RecordingFile) -> Vec<String> {
    let mut times = Vec::new();
    while let Some(Due { time, .. }) = file.next().unwrap() {
        times.push(time.strftime("%M:%S").to_string());
    }
    times
}

#[test]
fn a_recording_without_messages_is_one() {
    for text in [HEADER.to_owned(), format!("{HEADER}\n")] {
        let mut file = open(&text).unwrap();
        assert_eq!((file.header().context.as_str(), file.is_cut()), ("prod", false));
        assert_eq!(file.end(), file.header().started);
        assert!(file.next().unwrap().is_none());
    }
}

#[test]
fn the_last_line_may_lack_its_end() {
    let whole = format!("{HEADER}\n{}\n{}\n", idle("00:01"), idle("00:02"));
    for cut in 0..whole.len() {
        let text = &whole[..cut];
        let lines = text.matches('\n').count();
        match open(text) {
            Ok(mut file) if cut >= HEADER.len() => {
                let read = times(&mut file).len();
                // A line that lacks only its line break is whole.
                let is_whole = cut + 1 == whole.len() || cut == HEADER.len() + 1 + idle("00:01").len();
                assert_eq!(read, lines.saturating_sub(1) + usize::from(is_whole), "{cut}");
                assert_eq!(file.is_cut(), !text.ends_with('\n') && !is_whole && cut > HEADER.len(), "{cut}");
            }
            Err(RecordingError::NotARecording { .. }) if cut < HEADER.len() => {}
            other => panic!("{cut}: {:?}", other.err()),
        }
    }
}

#[test]
fn time_does_not_go_backwards() {
    let text = format!("{HEADER}\n{}\n{}\n{}\n", idle("00:09"), idle("00:05"), idle("00:10"));
    let mut file = open(&text).unwrap();
    assert_eq!(file.end().strftime("%M:%S").to_string(), "00:10");
    assert_eq!(times(&mut file), ["00:09", "00:09", "00:10"]);
    let before = idle("00:01").replace("03:00", "02:00");
    let mut file = open(&format!("{HEADER}\n{before}\n")).unwrap();
    assert_eq!(times(&mut file), ["00:00"]);
}

#[test]
fn a_place_can_be_returned_to() {
    let text = format!("{HEADER}\n{}\n{}\n{}\n", idle("00:01"), idle("00:02"), idle("00:03"));
    let mut file = open(&text).unwrap();
    file.next().unwrap();
    let place = file.place();
    assert_eq!(times(&mut file), ["00:02", "00:03"]);
    file.go_to(place).unwrap();
    assert_eq!(times(&mut file), ["00:02", "00:03"]);
}

#[test]
fn an_error_has_the_number_of_its_line() {
    let good = idle("00:01");
    for (bad, problem) in [
        ("", "EOF while parsing"),
        ("null", "invalid type: null"),
        (r#"{"time":"2026-01-02T03:00:02Z"}"#, "missing field `message`"),
        (r#"{"time":"noon","message":"idle"}"#, "failed to parse"),
        (r#"{"time":"2026-01-02T03:00:02Z","message":{"weather":1}}"#, "unknown variant `weather`"),
        (r#"{"time":"2026-01-02T03:00:02Z","message":{"maintenances":{"applied":{}}}}"#, "missing field"),
    ] {
        let mut file = open(&format!("{HEADER}\n{good}\n{bad}\n{good}\n")).unwrap();
        assert!(file.next().unwrap().is_some());
        match file.next() {
            Err(RecordingError::InvalidLine { line: 3, why, .. }) if why.contains(problem) => {}
            other => panic!("{bad}: {:?}", other.err()),
        }
    }
}

#[test]
fn another_file_is_not_a_recording() {
    for text in ["", "\n", "hello\n", "{}\n", "[1]\n", r#"{"type":"snapshot","live":true}"#, "\0\0\0"] {
        match open(text) {
            Err(RecordingError::NotARecording { .. }) => {}
            other => panic!("{text}: {:?}", other.err()),
        }
    }
}

#[test]
fn a_format_of_the_future_is_named_with_its_program() {
    let future = r#"{"recording":2,"program":"9.0.0","begun":"then"}"#;
    let Err(error) = open(future) else { panic!() };
    let printed = format!("{error}\n{}", error.hint().unwrap());
    insta::assert_snapshot!("format_of_the_future", printed);
}

#[test]
fn extreme_times_are_read() {
    for time in [Timestamp::MIN, Timestamp::MAX] {
        let line = format!(r#"{{"time":"{time}","message":"idle"}}"#);
        let mut file = open(&format!("{HEADER}\n{line}\n")).unwrap();
        assert!(file.next().unwrap().is_some());
        assert!(file.end() >= file.header().started);
    }
}
