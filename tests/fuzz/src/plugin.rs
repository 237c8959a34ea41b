//! Targets of the plugin: what it reads from people and from files, and what it shows of what an API server sends.

use std::io::Write;

use jiff::Timestamp;
use kubectl_nm::in_process::{self, Received, Report};
use serde::Deserialize;
use serde_json::Value;

/// The credentials in the kubeconfigs of the corpus begin with it.
const SECRET: &str = "s3cr3t";

/// The sequences that the plugin adds for colours.
const COLOURS: [&str; 5] = ["\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"];

/// Panics if a terminal would not show a text as it is: with a control character, or one that reorders the text around it.
fn is_harmless(text: &str) {
    let misleads = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let found = text.chars().find(|c| *c != '\n' && (c.is_control() || misleads(*c)));
    assert!(found.is_none(), "{found:?} in {text:?}");
}

/// A kubeconfig of any content leads to a server or to an error that has no credentials in it.
pub fn kubeconfig(data: &[u8]) -> bool {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(data).expect("a temporary file can be written");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(in_process::server(file.path())) {
        Ok(server) => {
            assert!(server.contains("://"), "{server:?} is not an address");
            true
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains(SECRET), "credentials in {error:?}");
            let (message, hint) = error.split_once('\n').unwrap_or((&error, ""));
            assert!(!message.is_empty() && !hint.starts_with(char::is_whitespace), "{error:?}");
            false
        }
    }
}

/// Arguments of any content, one a line, are accepted, or refused with an error that names one of them.
pub fn command_line(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let arguments: Vec<&str> = text.lines().collect();
    match in_process::parse_arguments(&arguments) {
        Ok(()) => true,
        Err(error) => {
            let error = error.to_string();
            assert!(!error.trim().is_empty(), "{arguments:?}");
            let value = error.split_once("invalid value '").and_then(|(_, rest)| rest.split_once("' for '"));
            if let Some((value, _)) = value {
                // Control characters and escape sequences are left out, so that they do not reach a terminal.
                let is_shown = |argument: &&str| {
                    let mut rest = argument.chars();
                    value.chars().filter(|c| !c.is_control()).all(|shown| rest.any(|c| c == shown))
                };
                assert!(arguments.iter().any(is_shown), "{error:?} for {arguments:?}");
            }
            false
        }
    }
}

/// A text of any content is a duration or a window of a roll, which are shown as they are read, or refused with a reason.
pub fn time(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let duration = in_process::parse_duration(text);
    if let Ok(duration) = &duration {
        let shown = in_process::format_duration(*duration);
        let read = in_process::parse_duration(&shown);
        assert_eq!(
            read.ok().map(|read| read.as_millis()),
            Some(duration.as_millis()),
            "{text:?} is shown as {shown}"
        );
    }
    let window = in_process::parse_window(text, Timestamp::UNIX_EPOCH);
    if let Ok(shown) = &window {
        let read = in_process::parse_window(shown, Timestamp::MAX);
        assert_eq!(read.as_ref().ok(), Some(shown), "{text:?}");
    }
    for reason in [duration.as_ref().err(), window.as_ref().err()].into_iter().flatten() {
        assert!(!reason.to_string().is_empty(), "{text:?}");
    }
    duration.is_ok() || window.is_ok()
}

/// A filter of any content selects fewer rows with each word, and the row whose own words it has.
pub fn filter(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut lines = text.lines();
    let filter = lines.next().unwrap_or_default();
    let mut row = [""; 4];
    row.iter_mut().zip(lines).for_each(|(cell, line)| *cell = line);
    let selects = |filter: &str| in_process::is_selected(filter, row);
    let words = in_process::filter_words(filter);
    let without_blanks = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(without_blanks(&words.concat()), without_blanks(filter), "no part of a filter is lost");
    let each = words.iter().all(|word| selects(word));
    assert_eq!(selects(filter), each, "{filter:?} of {row:?}");
    let [node, namespace, state, shown] = row;
    for (key, value) in [("node:", node), ("ns:", namespace), ("state:", state), ("", shown)] {
        let is_word = !value.is_empty() && !value.contains(char::is_whitespace);
        // A word may be a pattern, a key, a negation or a regular expression.
        if is_word && !value.contains(['*', '?', ':']) && !value.starts_with(['!', '/']) {
            assert!(selects(&format!("{key}{value}")), "{key}{value} of {row:?}");
        }
    }
    true
}

/// A cluster, and what is done on the dashboard.
#[derive(Deserialize)]
struct Session {
    received: Received,
    keys: String,
    width: u16,
    height: u16,
    now: Timestamp,
}

/// Objects of any content, on a dashboard of any size, are shown without anything that a terminal obeys.
pub fn screen(data: &[u8]) -> bool {
    let Ok(session) = serde_json::from_slice::<Session>(data) else { return false };
    let size = (session.width.min(400), session.height.min(100));
    let keys: String = session.keys.chars().take(40).collect();
    for shown in in_process::draw(&session.received, &keys, size, session.now) {
        is_harmless(&shown);
    }
    true
}

/// A recording of any content is replayed without anything that a terminal obeys, or refused with an error.
pub fn recording(data: &[u8]) -> bool {
    // A replay draws many screens, so each input has one of the sizes.
    let size = if data.len().is_multiple_of(2) { (120, 30) } else { (45, 12) };
    let replayed = in_process::replay(data, size);
    replayed.shown.iter().for_each(|shown| is_harmless(shown));
    is_harmless(&replayed.printed);
    if let Some(error) = &replayed.error {
        assert!(error.starts_with("error: ") && error.contains("\nhint: "), "{error:?}");
        is_harmless(error);
    }
    replayed.error.is_none()
}

/// Objects of any content are printed without anything that a terminal obeys but colours. Documents keep their meaning.
pub fn report(data: &[u8]) -> bool {
    let Ok(received) = serde_json::from_slice::<Received>(data) else { return false };
    for report in Report::ALL {
        let printed = in_process::print(report, &received, false);
        is_harmless(&printed.data);
        is_harmless(&printed.messages);
        keeps_its_meaning(report, &printed.data, &received);
        let coloured = in_process::print(report, &received, true);
        for text in [coloured.data, coloured.messages] {
            is_harmless(&COLOURS.iter().fold(text, |text, colour| text.replace(colour, "")));
        }
    }
    true
}

fn keeps_its_meaning(report: Report, printed: &str, received: &Received) {
    let items = || serde_json::to_value(&received.maintenances).expect("maintenances can be written");
    let list: Value = match report {
        Report::Json => serde_json::from_str(printed).expect("JSON"),
        Report::Yaml => serde_saphyr::from_str(printed).expect("YAML"),
        Report::WatchJson => {
            for line in printed.lines() {
                let record: Value = serde_json::from_str(line).expect("JSON");
                assert!(record["type"].is_string(), "{line}");
            }
            return;
        }
        _ => return,
    };
    let mut items = items();
    for item in items.as_array_mut().into_iter().flatten() {
        item["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
    }
    assert_eq!(list["items"], items, "{report:?}");
}
