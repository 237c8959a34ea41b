//! Confirmation before a command affects more than one node, harms something, or changes the installation.

use std::io::BufRead;

use crate::error::Error;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

/// A question, and what the user has to know for the answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Question<'a> {
    /// What is done, without the question mark. `{}` is replaced by the node or the number of nodes.
    pub what: &'a str,
    /// The name of the cluster: the context of the kubeconfig.
    pub cluster: &'a str,
    /// The nodes that are affected.
    pub nodes: &'a [String],
    /// The reason for the maintenance, if it has one.
    pub reason: Option<&'a str>,
    /// What is run for each node, if anything is.
    pub runs: Option<&'a str>,
    /// What would be harmed.
    pub harms: &'a [Line],
    /// What takes long, which is no reason to ask.
    pub slow: &'a [Line],
    /// What is not known about that.
    pub unknown: Option<&'a Line>,
    /// Whether that is a reason to ask: it would be known with more time.
    pub is_late: bool,
}

impl Question<'_> {
    /// Asks for confirmation if several nodes are affected, if something is harmed, or if that was not known in time, unless `yes` is
    /// given. Without a terminal, harm alone is printed and no reason to stop.
    ///
    /// # Errors
    ///
    /// When there is no terminal to ask on and several nodes are affected, and when the answer is no.
    pub fn ask_if_needed(&self, yes: bool, out: &mut Output) -> Result<(), Error> {
        let is_small = self.nodes.len() < 2;
        let is_harmless = self.harms.is_empty() && !self.is_late;
        if yes || (is_small && (is_harmless || !out.can_ask())) {
            self.print_harms(out);
            return Ok(());
        }
        self.ask(yes, out)
    }

    /// Asks for confirmation in any case, unless `yes` is given.
    ///
    /// # Errors
    ///
    /// If there is no terminal to ask on, or if the answer is no.
    pub fn ask(&self, yes: bool, out: &mut Output) -> Result<(), Error> {
        if !yes && !out.can_ask() {
            return Err(Error::Unconfirmed);
        }
        if !yes {
            self.details(out).iter().for_each(|line| out.wrapped_message(line));
        }
        self.print_harms(out);
        if yes { Ok(()) } else { prompt(&self.sentence(), out, &mut std::io::stdin().lock()) }
    }

    fn print_harms(&self, out: &mut Output) {
        let lines = self.harms.iter().chain(self.slow).chain(self.unknown);
        lines.for_each(|line| out.wrapped_message_with_commands(line));
    }

    fn sentence(&self) -> String {
        let nodes = match self.nodes {
            [node] => format!("node {node}"),
            nodes => format!("these {} nodes", nodes.len()),
        };
        self.what.replace("{}", &nodes)
    }

    /// The cluster, the nodes, the reason and the command, one line each.
    fn details(&self, out: &Output) -> Vec<Line> {
        let nodes = self.nodes.join(", ");
        let details = [
            ("cluster", Some(self.cluster)),
            (if self.nodes.len() == 1 { "node" } else { "nodes" }, Some(nodes.as_str())),
            ("reason", self.reason),
            ("runs", self.runs),
            ("command", out.command()),
        ];
        let known = details.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let known = known.filter(|(_, value)| !value.is_empty());
        known.map(|(name, value)| Line::new(format!("{:<9}{value}", format!("{name}:")))).collect()
    }
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
    fn without_a_terminal_more_than_one_node_needs_the_flag_and_harm_is_printed() {
        let (one, two, harms) = (nodes(&["n1"]), nodes(&["n1", "n2"]), [Line::new("no capacity")]);
        let question = |nodes| Question { what: "Drain {}", nodes, harms: &harms, ..Question::default() };
        for (nodes, yes) in [(&one, false), (&one, true), (&two, true)] {
            let (mut out, captured) = output();
            question(nodes).ask_if_needed(yes, &mut out).unwrap();
            assert_eq!(captured.messages(), "no capacity\n", "{nodes:?} {yes}");
        }
        let (mut out, captured) = output();
        let refused = question(&two).ask_if_needed(false, &mut out).unwrap_err();
        assert_eq!((refused.exit(), captured.messages()), (Exit::Usage, String::new()));
        assert!(matches!(refused, Error::Unconfirmed), "{refused}");
        question(&one).ask(true, &mut out).unwrap();
        assert_eq!(question(&one).ask(false, &mut out).unwrap_err().exit(), Exit::Usage);
    }

    #[test]
    fn a_question_names_the_cluster_the_nodes_the_reason_and_the_command() {
        let (out, _) = output();
        let out = out.with_command("kubectl nm start n1 n2");
        let two = nodes(&["n1", "n2"]);
        let question = Question {
            what: "Drain {}",
            cluster: "prod",
            nodes: &two,
            reason: Some("kernel"),
            runs: Some("reboot"),
            ..Question::default()
        };
        let details: Vec<String> = question.details(&out).iter().map(ToString::to_string).collect();
        assert_eq!(
            details,
            [
                "cluster: prod",
                "nodes:   n1, n2",
                "reason:  kernel",
                "runs:    reboot",
                "command: kubectl nm start n1 n2"
            ]
        );
        assert_eq!(question.sentence(), "Drain these 2 nodes");
        assert_eq!(Question { nodes: &two[..1], ..question }.sentence(), "Drain node n1");
    }
}
