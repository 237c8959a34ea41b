//! Commands for people to paste, which must act on the very cluster that they are shown about.
//!
//! A text has its commands in backticks, as short as they can be. The flags that lead to the cluster are put in where the
//! text is shown, so that no text can forget them.

/// The text with flags in its commands that lead to the cluster, each flag with a blank before it. A command that has them
/// already stays as it is.
pub(crate) fn with_flags(text: &str, flags: &str) -> String {
    if flags.is_empty() {
        return text.to_owned();
    }
    let part = |(at, part): (usize, &str)| if at % 2 == 1 { led(part, flags) } else { part.to_owned() };
    text.split('`').enumerate().map(part).collect::<Vec<_>>().join("`")
}

/// Commands that follow one another. kubectl takes no flag before the name of a plugin, which takes them anywhere.
fn led(commands: &str, flags: &str) -> String {
    let each = commands.split(" && ").map(|command| match command.strip_prefix("kubectl ") {
        Some(_) if command.contains(flags) => command.to_owned(),
        Some(rest) if rest.starts_with("nm ") => format!("{command}{flags}"),
        Some(rest) => format!("kubectl{flags} {rest}"),
        None => command.to_owned(),
    });
    each.collect::<Vec<_>>().join(" && ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_backticks_lead_to_the_cluster_and_other_words_stay() {
        for (text, led) in [
            ("kubectl nm is a plugin", "kubectl nm is a plugin"),
            ("`kubectl nm stop n1` ends it", "`kubectl nm stop n1 --context=c` ends it"),
            ("see `kubectl get nodes`", "see `kubectl --context=c get nodes`"),
            (
                "`kubectl uncordon n1 && kubectl annotate node n1 a-`",
                "`kubectl --context=c uncordon n1 && kubectl --context=c annotate node n1 a-`",
            ),
            (
                "`kubectl nm status`, then `kubectl nm stop n1 --context=c`",
                "`kubectl nm status --context=c`, then `kubectl nm stop n1 --context=c`",
            ),
            ("`spec.drain` is a field", "`spec.drain` is a field"),
        ] {
            assert_eq!(with_flags(text, " --context=c"), led);
            assert_eq!(with_flags(text, ""), text);
        }
    }
}
