//! Asking before something happens to more than one node, or to the installation.

use std::io::BufRead;

use crate::error::Error;
use crate::error::setup_error::SetupError;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

/// Whether these nodes are to be touched: what was asked for by name alone is meant, and so is what was confirmed by
/// `-y`; everything else is listed and asked about. `what` is the question without its number: `Put {} into maintenance`.
///
/// # Errors
///
/// When there is nobody to ask, and when the answer is no.
pub(crate) fn confirm(what: &str, nodes: &[String], yes: bool, out: &mut Output) -> Result<(), Error> {
    if yes || nodes.len() < 2 {
        return Ok(());
    }
    if !out.can_ask() {
        return Err(Error::Unconfirmed(nodes.len()));
    }
    ask(what, nodes, out, &mut std::io::stdin().lock())
}

/// The same for what is asked about whomever it concerns.
///
/// # Errors
///
/// When there is nobody to ask, and when the answer is no.
pub(crate) fn confirm_this(question: &str, yes: bool, out: &mut Output) -> Result<(), Error> {
    if yes {
        return Ok(());
    }
    if !out.can_ask() {
        return Err(SetupError::Unconfirmed.into());
    }
    put(question, out, &mut std::io::stdin().lock())
}

fn ask(what: &str, nodes: &[String], out: &mut Output, answers: &mut impl BufRead) -> Result<(), Error> {
    for node in nodes {
        out.talk(&Line::new(format!("node/{node}")));
    }
    put(&what.replace("{}", &format!("these {} nodes", nodes.len())), out, answers)
}

fn put(question: &str, out: &mut Output, answers: &mut impl BufRead) -> Result<(), Error> {
    out.question(&format!("{question}? [y/N]"));
    let mut answer = String::new();
    // An answer that cannot be read is none.
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
    fn the_nodes_are_listed_and_only_a_yes_is_one() {
        for (answer, agreed) in
            [("y\n", true), ("Yes\n", true), ("\n", false), ("n\n", false), ("", false), ("yolo\n", false)]
        {
            let (mut out, captured) = output();
            let answered = ask("Drain {}", &nodes(&["n1", "n2"]), &mut out, &mut answer.as_bytes());
            assert_eq!(answered.is_ok(), agreed, "{answer:?}");
            assert!(
                answered.is_ok() || answered.is_err_and(|error| error.exit() == Exit::Usage),
                "{answer:?}"
            );
            assert_eq!(captured.talk(), "node/n1\nnode/n2\nDrain these 2 nodes? [y/N] ");
            assert_eq!(captured.data(), "");
        }
    }

    #[test]
    fn without_a_terminal_nobody_is_asked_and_more_than_one_node_needs_a_yes() {
        let (mut out, captured) = output();
        confirm("x", &nodes(&["n1"]), false, &mut out).unwrap();
        confirm("x", &nodes(&["n1", "n2"]), true, &mut out).unwrap();
        let refused = confirm("x", &nodes(&["n1", "n2"]), false, &mut out).unwrap_err();
        assert_eq!((refused.exit(), captured.talk()), (Exit::Usage, String::new()));
        assert_eq!(
            refused.to_string(),
            "error: 2 nodes are concerned, and there is no terminal to ask on: -y confirms"
        );
        confirm_this("x", true, &mut out).unwrap();
        assert_eq!(confirm_this("x", false, &mut out).unwrap_err().exit(), Exit::Usage);
    }
}
