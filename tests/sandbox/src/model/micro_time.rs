//! `metav1.MicroTime`, as in leases and events: exactly six fractional digits.
//!
//! The API server rejects times with whole seconds, with the error message of Go's parser.

use serde_json::Value;

const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
/// The layout in the parts in which Go parses it, each with its length.
const PIECES: [(&str, usize); 12] = [
    ("2006", 4),
    ("-", 1),
    ("01", 2),
    ("-", 1),
    ("02", 2),
    ("T", 1),
    ("15", 2),
    (":", 1),
    ("04", 2),
    (":", 1),
    ("05", 2),
    (".000000", 7),
];
const ZONE: &str = "Z07:00";

/// The `MicroTime` fields of a kind.
fn fields(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("coordination.k8s.io", "leases") => &["/spec/acquireTime", "/spec/renewTime"],
        ("", "events") => &["/eventTime", "/series/lastObservedTime"],
        _ => &[],
    }
}

/// The error of the first invalid time.
pub(crate) fn validation_error(group: &str, plural: &str, object: &Value) -> Option<String> {
    fields(group, plural).iter().find_map(|field| unreadable(object.pointer(field)?.as_str()?))
}

fn unreadable(text: &str) -> Option<String> {
    let mut rest = text;
    for (piece, length) in PIECES {
        match rest.split_at_checked(length).filter(|(found, _)| fits(piece, found)) {
            Some((_, after)) => rest = after,
            None => return Some(reported(text, rest, piece)),
        }
    }
    let is_zone = rest == "Z" || (rest.len() == 6 && rest.starts_with(['+', '-']));
    if !is_zone {
        return Some(reported(text, rest, ZONE));
    }
    let exists = text.parse::<jiff::Timestamp>().is_ok();
    (!exists).then(|| format!("parsing time {text:?}: day out of range"))
}

/// Whether a text has the form of a part: digits match digits, everything else itself.
fn fits(piece: &str, text: &str) -> bool {
    let alike = |(wanted, found): (u8, u8)| {
        if wanted.is_ascii_digit() { found.is_ascii_digit() } else { found == wanted }
    };
    piece.bytes().zip(text.bytes()).all(alike)
}

fn reported(text: &str, rest: &str, piece: &str) -> String {
    format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as {piece:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(text: &str, expected: &str) {
        let lease = json!({"spec": {"holderIdentity": "a", "renewTime": text}});
        let reported = validation_error("coordination.k8s.io", "leases", &lease).unwrap_or_default();
        let begin = format!("parsing time {text:?} as {LAYOUT:?}: ");
        assert_eq!(reported.strip_prefix(&begin).unwrap_or(&reported), expected, "{text}");
    }

    #[test]
    fn a_time_has_its_six_digits_or_is_refused_as_go_refuses_it() {
        check("2026-01-01T00:00:00.123456Z", "");
        check("2026-01-01T00:00:00.123456+01:00", "");
        check("2026-01-01T00:00:00Z", "cannot parse \"Z\" as \".000000\"");
        check("2026-01-01T00:00:00.1Z", "cannot parse \".1Z\" as \".000000\"");
        check("2026-01-01T00:00:00.1234567Z", "cannot parse \"7Z\" as \"Z07:00\"");
        check("2026-01-01 00:00:00.123456Z", "cannot parse \" 00:00:00.123456Z\" as \"T\"");
        check("yesterday", "cannot parse \"yesterday\" as \"2006\"");
        check(
            "2026-02-31T00:00:00.000000Z",
            "parsing time \"2026-02-31T00:00:00.000000Z\": day out of range",
        );
    }

    #[test]
    fn only_the_times_of_leases_and_events_are_that_exact() {
        let event = json!({"eventTime": "2026-01-01T00:00:00Z"});
        assert!(validation_error("", "events", &event).is_some());
        assert!(
            validation_error(
                "",
                "events",
                &json!({"lastTimestamp": "2026-01-01T00:00:00Z", "eventTime": null})
            )
            .is_none()
        );
        assert!(validation_error("", "pods", &event).is_none());
    }
}
