//! Hints for a user whose command a roll refuses, by what the roll does.
//!
//! Commands are in backticks; connection flags are inserted where a hint is printed.

use nm_shared::api::roll_state::RollStanding;

use crate::terminal::command_context::{shell_quoted, skip_command};

/// What a roll does, and the command that shows more or lets it continue. `standing`: none if it is not known what the roll does.
pub fn of_roll(roll: &str, standing: Option<&RollStanding>) -> String {
    let command = |verb: &str| format!("`kubectl nm roll {verb} {}`", shell_quoted(roll));
    let continues = || format!("{} continues it", command("resume"));
    let watch = || format!("{} shows the progress", command("watch"));
    match standing {
        Some(RollStanding::Running(who)) => format!("{who} runs the roll: {}", watch()),
        Some(RollStanding::Paused) => format!("the roll is paused: {}", continues()),
        Some(RollStanding::Halted) => {
            format!("the roll has halted: {} shows why, and {}", command("status"), continues())
        }
        Some(RollStanding::Abandoned) => {
            // The Job of a roll in the cluster may be about to run it.
            format!(
                "nobody runs the roll now: {} shows whether it continues by itself; otherwise, {}",
                command("status"),
                continues()
            )
        }
        Some(RollStanding::Ending(who)) => {
            format!("the roll was aborted, and {who} finishes its nodes: {}", watch())
        }
        Some(RollStanding::Over) => format!(
            "the roll was aborted, and nobody finishes its nodes: `kubectl nm roll abort {} --return` returns them to service",
            shell_quoted(roll)
        ),
        None => format!("{} shows the roll, and {}", command("status"), continues()),
    }
}

/// The same for a node of the roll, with what takes the node out of it.
pub(super) fn of_node(node: &str, roll: &str, standing: Option<&RollStanding>) -> String {
    let what = of_roll(roll, standing);
    if let Some(RollStanding::Ending(_) | RollStanding::Over) = standing {
        return what;
    }
    let is_running = matches!(standing, Some(RollStanding::Running(_)));
    let skip = skip_command("kubectl", roll, node, is_running);
    let abort = format!("`kubectl nm roll abort {}` ends it", shell_quoted(roll));
    format!("{what}; `{skip}` continues it without the node, and {abort}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_that_is_in_the_way_is_resumed_only_if_that_is_what_it_waits_for() {
        let who = || String::from("ada@vm");
        let rest = "`kubectl nm roll resume r --skip n` continues it without the node, and `kubectl nm roll abort r` ends it";
        for (standing, expected) in [
            (
                Some(RollStanding::Running(who())),
                "ada@vm runs the roll: `kubectl nm roll watch r` shows the progress; `kubectl nm roll pause r && kubectl nm \
                 roll resume r --skip n` continues it without the node, and `kubectl nm roll abort r` ends it"
                    .to_owned(),
            ),
            (
                Some(RollStanding::Paused),
                format!("the roll is paused: `kubectl nm roll resume r` continues it; {rest}"),
            ),
            (
                Some(RollStanding::Halted),
                format!(
                    "the roll has halted: `kubectl nm roll status r` shows why, and `kubectl nm roll resume r` continues it; \
                     {rest}"
                ),
            ),
            (
                Some(RollStanding::Abandoned),
                format!(
                    "nobody runs the roll now: `kubectl nm roll status r` shows whether it continues by itself; otherwise, \
                     `kubectl nm roll resume r` continues it; {rest}"
                ),
            ),
            (
                Some(RollStanding::Ending(who())),
                "the roll was aborted, and ada@vm finishes its nodes: `kubectl nm roll watch r` shows the progress".to_owned(),
            ),
            (
                Some(RollStanding::Over),
                "the roll was aborted, and nobody finishes its nodes: `kubectl nm roll abort r --return` returns them to service"
                    .to_owned(),
            ),
            (
                None,
                format!(
                    "`kubectl nm roll status r` shows the roll, and `kubectl nm roll resume r` continues it; {rest}"
                ),
            ),
        ] {
            assert_eq!(of_node("n", "r", standing.as_ref()), expected, "{standing:?}");
        }
    }
}
