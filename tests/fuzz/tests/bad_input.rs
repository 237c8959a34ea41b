//! The fuzz targets on the inputs that are kept in `corpus/`, and on changed copies of them.
//!
//! A changed copy has something else in one to four places: another value, another type, a field less, a byte more. The
//! copies are the same in every run. `NM_FUZZ_SECONDS` is how long each target runs, [`SECONDS`] if it is not set.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long each target runs.
const SECONDS: u64 = 3;

/// No input takes more processor time, even in a debug build.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Pseudo-random numbers (`splitmix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % limit.max(1) as u64).unwrap()
    }

    fn value(&mut self) -> Value {
        let values = [
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(429),
            json!(i64::from(i32::MAX)),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e300),
            json!(""),
            json!("x".repeat(5000)),
            json!("ünï\u{202e}\u{1b}[31m\n\0"),
            json!("9999-12-31T23:59:59Z"),
            json!("0001-01-01T00:00:00Z"),
            json!("-262143-01-01T00:00:00Z"),
            json!("true"),
            json!("Succeeded"),
            json!("admission webhook \""),
            json!([]),
            json!({}),
            json!([null]),
            json!({"": ""}),
        ];
        let at = self.below(values.len());
        values[at].clone()
    }

    /// Replaces, removes or repeats something below `value`.
    fn change(&mut self, value: &mut Value) {
        let stops = self.below(16) == 0;
        match value {
            Value::Object(map) if !map.is_empty() && !stops => {
                let key = map.keys().nth(self.below(map.len())).unwrap().clone();
                if self.below(8) == 0 {
                    map.remove(&key);
                } else {
                    self.change(map.get_mut(&key).unwrap());
                }
            }
            Value::Array(list) if !list.is_empty() && !stops => {
                let at = self.below(list.len());
                match self.below(8) {
                    0 => drop(list.remove(at)),
                    1 => (0..80).for_each(|_| list.push(list[at].clone())),
                    _ => self.change(&mut list[at]),
                }
            }
            Value::String(text) if !stops && text.starts_with('{') => {
                // A record in an annotation.
                if let Ok(mut record) = serde_json::from_str::<Value>(text) {
                    self.change(&mut record);
                    *text = record.to_string();
                }
            }
            _ => {
                // Mostly of the same type: an object with a field of another type is not stored.
                let (before, any) = (std::mem::discriminant(&*value), self.below(8) == 0);
                let next =
                    (0..32).map(|_| self.value()).find(|next| any || std::mem::discriminant(next) == before);
                *value = next.unwrap_or_default();
            }
        }
    }

    /// Changes, repeats, moves or removes a line.
    fn change_lines(&mut self, lines: &mut Vec<Value>) {
        let (at, other) = (self.below(lines.len()), self.below(lines.len()));
        match self.below(8) {
            _ if lines.is_empty() => {}
            0 => drop(lines.remove(at)),
            1 => lines.insert(other, lines[at].clone()),
            2 => lines.swap(at, other),
            _ => self.change(&mut lines[at]),
        }
    }

    /// A changed copy of an input: as JSON where it is JSON, and byte by byte otherwise.
    fn changed(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        let places = 1 + self.below(4);
        if let (Ok(mut value), true) = (serde_json::from_slice::<Value>(input), self.below(10) > 0) {
            (0..places).for_each(|_| self.change(&mut value));
            return serde_json::to_vec(&value).unwrap();
        }
        if let Some(mut lines) = json_lines(input)
            && self.below(4) > 0
        {
            (0..places).for_each(|_| self.change_lines(&mut lines));
            return lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n").into_bytes();
        }
        for _ in 0..places {
            let at = self.below(bytes.len());
            match self.below(3) {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => bytes[at] = u8::try_from(self.below(256)).unwrap(),
                _ => bytes.insert(at, u8::try_from(self.below(256)).unwrap()),
            }
        }
        bytes
    }
}

/// The lines of an input of several, each of which is JSON.
fn json_lines(input: &[u8]) -> Option<Vec<Value>> {
    let lines: Option<Vec<Value>> =
        std::str::from_utf8(input).ok()?.lines().map(|line| serde_json::from_str(line).ok()).collect();
    lines.filter(|lines| lines.len() > 1)
}

/// The processor time that this thread has used, as Linux counts it; nothing on other systems.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

/// Runs a target on its kept inputs and on changed copies of them, and reports how many there were.
fn run(name: &str, target: fn(&[u8]) -> bool) {
    let seconds = std::env::var("NM_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let kept: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let mut random = Random(1);
    let (mut count, mut understood) = (0, 0);
    let mut check = |input: &[u8]| {
        let begun = processor_time();
        let shown = String::from_utf8_lossy(input);
        let Ok(is_understood) = catch_unwind(|| target(input)) else {
            panic!("{name}: keep this in tests/fuzz/corpus/{name}: {shown}");
        };
        let taken = processor_time().saturating_sub(begun);
        assert!(taken < MAX_TIME, "{name}: took {taken:?}: {shown}");
        count += 1;
        understood += u32::from(is_understood);
        is_understood
    };
    for (input, file) in kept.iter().zip(&files) {
        // What is refused is kept if it caused a failure once.
        let is_refused = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("refused-"));
        assert_eq!(check(input), !is_refused, "{name}: whether {} is understood", file.display());
    }
    while Instant::now() < end {
        let input = &kept[random.below(kept.len())];
        check(&random.changed(input));
    }
    eprintln!(
        "{name}: {count} inputs, {understood} of them understood, from {} kept ones in {seconds} s",
        kept.len()
    );
}

#[test]
fn objects_of_any_content_lead_to_a_decision_that_changes_only_own_marks() {
    run("state", nm_fuzz::state);
}

#[test]
fn an_answer_of_any_content_has_one_outcome() {
    run("eviction_answer", nm_fuzz::eviction_answer);
}

#[test]
fn a_review_of_any_content_is_answered_or_refused_with_a_reason() {
    run("admission_review", nm_fuzz::admission_review);
}

#[test]
fn a_kubeconfig_of_any_content_leads_to_a_server_or_to_an_error_without_credentials() {
    run("kubeconfig", nm_fuzz::plugin::kubeconfig);
}

#[test]
fn arguments_of_any_content_are_accepted_or_refused_by_their_value() {
    run("command_line", nm_fuzz::plugin::command_line);
}

#[test]
fn a_text_of_any_content_is_a_duration_a_window_or_refused_with_a_reason() {
    run("time", nm_fuzz::plugin::time);
}

#[test]
fn a_filter_of_any_content_selects_fewer_rows_with_each_word() {
    run("filter", nm_fuzz::plugin::filter);
}

#[test]
fn objects_of_any_content_are_drawn_without_control_characters_on_a_screen_of_any_size() {
    run("screen", nm_fuzz::plugin::screen);
}

#[test]
fn recordings_of_any_content_are_replayed_or_refused() {
    run("recording", nm_fuzz::plugin::recording);
}

#[test]
fn objects_of_any_content_are_printed_without_control_characters_and_keep_their_meaning() {
    run("report", nm_fuzz::plugin::report);
}

#[test]
fn a_text_of_any_content_is_a_quantity_a_selector_a_name_or_none() {
    run("text", nm_fuzz::text);
}
