//! Confirmation before a command affects more than one node, or the installation.

use std::io::BufRead;

use crate::error::Error;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

/// Asks for confirmation if several nodes are affected, unless `--yes` is given. `what` is the question with a placeholder
/// for the number of nodes: `Put {} into maintenance`.
///
/// # Errors
///
/// When there is no terminal to ask on, and when the answer is no.
pub fn confirm(what: &str, nodes: &[String], yes: bool, out: &mut Output) -> Result<(), Error> {
    if yes || nodes.len() < 2 {
        return Ok(());
    }
    if out.can_ask() {
        for node in nodes {
            out.message(&Line::new(format!("node/{node}")));
        }
    }
    confirm_always(&what.replace("{}", &format!("these {} nodes", nodes.len())), yes, out)
}

/// Asks for confirmation in any case, unless `--yes` is given.
///
/// # Errors
///
/// If there is no terminal to ask on, or if the answer is no.
pub fn confirm_always(question: &str, yes: bool, out: &mut Output) -> Result<(), Error> {
    if yes {
        return Ok(());
    }
    if !out.can_ask() {
        return Err(Error::Unconfirmed);
    }
    prompt(question, out, &mut std::io::stdin().lock())
}

fn prompt(question: &str, out: &mut Output, answers: &mut impl BufRead) -> Result<(), Error> {
    out.question(&format!("{question}? [y/N]"));
    let mut answer = String::new();
    // An answer that cannot be read counts as no.
    let _ = answers.read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::Declined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit::Exit;
    use crate::terminal::output::captured::output;

    fn nodes(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_yes_confirms() {
        for (answer, agreed) in
            [("y\n", true), ("Yes\n", true), ("\n", false), ("n\n", false), ("", false), ("yolo\n", false)]
        {
            let (mut out, captured) = output();
            let answered = prompt("Drain these 2 nodes", &mut out, &mut answer.as_bytes());
            assert_eq!(answered.is_ok(), agreed, "{answer:?}");
            assert!(
                answered.is_ok() || answered.is_err_and(|error| error.exit() == Exit::Usage),
                "{answer:?}"
            );
            assert_eq!(captured.messages(), "Drain these 2 nodes? [y/N] ");
            assert_eq!(captured.data(), "");
        }
    }

    #[test]
    fn without_a_terminal_more_than_one_node_needs_the_flag() {
        let (mut out, captured) = output();
        confirm("x", &nodes(&["n1"]), false, &mut out).unwrap();
        confirm("x", &nodes(&["n1", "n2"]), true, &mut out).unwrap();
        let refused = confirm("x", &nodes(&["n1", "n2"]), false, &mut out).unwrap_err();
        assert_eq!((refused.exit(), captured.messages()), (Exit::Usage, String::new()));
        assert!(matches!(refused, Error::Unconfirmed), "{refused}");
        confirm_always("x", true, &mut out).unwrap();
        assert_eq!(confirm_always("x", false, &mut out).unwrap_err().exit(), Exit::Usage);
    }
}
