//! Messages of other programs, shortened to what a line has space for. Objects and `-o json` have them in full.

/// How many characters of a message are shown.
const MAX: usize = 160;

/// The message or, of a long one, its last causes: errors name the cause last (`failed to pull: failed to resolve: not found`).
pub fn last_causes(message: &str) -> String {
    if message.chars().count() <= MAX {
        return message.to_owned();
    }
    let tails = message.rmatch_indices(": ").map(|(at, separator)| &message[at + separator.len()..]);
    let fitting = tails.take_while(|tail| tail.chars().count() <= MAX).last();
    fitting.map_or_else(|| beginning(message), |tail| format!("... {tail}"))
}

/// The message or, of a long one, its beginning, without half of a word.
pub fn beginning(message: &str) -> String {
    let Some((end, _)) = message.char_indices().nth(MAX) else { return message.to_owned() };
    let cut = &message[..end];
    let whole = cut.rsplit_once(' ').map_or(cut, |(whole, _)| whole);
    format!("{} ...", whole.trim_end_matches([' ', ',', ':', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_is_shortened_to_its_last_causes() {
        let url = format!("https://registry.example.com/v2/{}/manifests/2", "shop/".repeat(60));
        let pull = format!(
            "rpc error: code = Unknown desc = failed to pull and unpack image \"shop/web:2\": failed to resolve reference \
             \"shop/web:2\": unexpected status from HEAD request to {url}: 401 Unauthorized"
        );
        assert_eq!(last_causes(&pull), "... 401 Unauthorized");
        let refused = "failed to pull and unpack image \"registry.example.com/shop/web:2\": failed to do request: Head \
            \"https://registry.example.com/v2/shop/web/manifests/2\": dial tcp 192.0.2.1:443: connect: connection refused";
        assert_eq!(
            last_causes(refused),
            "... failed to do request: Head \"https://registry.example.com/v2/shop/web/manifests/2\": dial tcp 192.0.2.1:443: \
             connect: connection refused"
        );
        assert_eq!(last_causes("manifest unknown"), "manifest unknown");
        assert_eq!(last_causes(&"x".repeat(200)), format!("{} ...", "x".repeat(160)));
    }

    #[test]
    fn the_beginning_ends_with_a_word() {
        let unfit = format!("0/50 nodes are available: {}", "1 node(s) had untolerated taint, ".repeat(9));
        let shown = beginning(&unfit);
        assert!(shown.ends_with(" ...") && shown.chars().count() <= MAX + 4, "{shown}");
        assert!(unfit.starts_with(shown.trim_end_matches(" ...")), "{shown}");
        assert_eq!(beginning("0/2 nodes are available"), "0/2 nodes are available");
        assert_eq!(beginning(&"ä".repeat(MAX)), "ä".repeat(MAX));
    }
}
