//! `kubectl nm roll status` of a roll that has ended in the cluster: what was done.

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::format::OutputFormat;
use nm_core::terminal::output::Output;
use nm_core::terminal::table;
use nm_core::terminal::text::{Line, Style, counted};
use nm_core::watch::wait_reporter::timestamp;
use nm_roll::error::RollError;
use nm_roll::in_cluster::history::{self, History, NodeHistory, Outcome, RollEnding, RollHistory};
use serde_json::{Value, json};

/// Prints the history of a roll. Without one, or without permission to read it, nothing is known of the roll.
pub(super) async fn print(
    name: &str,
    output: OutputFormat,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(), Error> {
    let stored = objects::get(cluster, &history::config_map(name)).await.ok().flatten();
    let Some(History { roll: Some(roll), nodes }) = stored.as_ref().map(|stored| History::of(stored).over())
    else {
        return Err(RollError::Forgotten(name.to_owned()).into());
    };
    let mut nodes: Vec<(String, NodeHistory)> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, node)| node.ended);
    if let OutputFormat::Data(format) = output {
        return format.print(&document(name, &roll, &nodes), out);
    }
    out.data(&Line::new(sentence(name, &roll, &nodes)))?;
    let rows: Vec<Vec<(Style, String)>> = nodes.iter().map(row).collect();
    for line in table::lines(&["NODE", "OUTCOME", "BEGAN", "ENDED", "PODS"], &rows) {
        out.data(&line)?;
    }
    let unlisted = roll.total.saturating_sub(nodes.len());
    if unlisted > 0 {
        out.message(&Line::new(format!("The outcome of {} is not recorded.", counted(unlisted, "node"))));
    }
    Ok(())
}

/// The roll as a whole, on a line.
fn sentence(name: &str, roll: &RollHistory, nodes: &[(String, NodeHistory)]) -> String {
    let done = nodes.iter().filter(|(_, node)| node.outcome == Outcome::Done).count();
    let by = if roll.started_by.is_empty() { String::new() } else { format!(" by {}", roll.started_by) };
    let began = roll.began.map(|began| format!(" at {}", shown(began))).unwrap_or_default();
    let started =
        if by.is_empty() && began.is_empty() { String::new() } else { format!(", started{by}{began}") };
    let since = shown(roll.since);
    let ending = match &roll.ending {
        RollEnding::Running => String::from("its end was not recorded"),
        RollEnding::Halted { message, .. } => format!("halted at {since}: {message}"),
        RollEnding::Aborted { by } => format!("aborted by {by} at {since}"),
        RollEnding::TakenOver { by } => format!("taken over by {by} at {since}"),
        RollEnding::Done => format!("ended at {since}"),
    };
    format!("roll {name}: {done} of {} done{started}, {ending}", counted(roll.total, "node"))
}

fn row((name, node): &(String, NodeHistory)) -> Vec<(Style, String)> {
    let style = if node.outcome == Outcome::Done { Style::Good } else { Style::Plain };
    vec![
        (Style::Plain, name.clone()),
        (style, node.outcome.words().to_owned()),
        (Style::Plain, node.began.map(shown).unwrap_or_default()),
        (Style::Plain, shown(node.ended)),
        (Style::Plain, node.pods.to_string()),
    ]
}

fn document(name: &str, roll: &RollHistory, nodes: &[(String, NodeHistory)]) -> Value {
    let mut document = json!(roll);
    document["kind"] = json!("RollHistory");
    document["version"] = json!(1);
    document["name"] = json!(name);
    let node = |(name, node): &(String, NodeHistory)| {
        let mut entry = json!(node);
        entry["node"] = json!(name);
        entry
    };
    document["nodes"] = nodes.iter().map(node).collect();
    document
}

fn shown(time: Timestamp) -> String {
    timestamp(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_roll_that_has_ended_names_its_end_and_who_started_it() {
        let since = "2026-03-07T22:10:00Z".parse().unwrap();
        let done = |node: &str, outcome| {
            (node.to_owned(), NodeHistory { outcome, began: None, ended: since, pods: 3 })
        };
        let nodes = [done("n1", Outcome::Done), done("n2", Outcome::Aborted)];
        let began = Some("2026-03-07T22:00:00.5Z".parse().unwrap());
        let started_by = String::from("ada@laptop");
        let aborted = RollEnding::Aborted { by: "bob@desk".into() };
        let roll = RollHistory { started_by, began, ending: aborted, since, total: 3 };
        assert_eq!(
            sentence("r", &roll, &nodes),
            "roll r: 1 of 3 nodes done, started by ada@laptop at 2026-03-07T22:00:00Z, aborted by bob@desk at \
             2026-03-07T22:10:00Z"
        );
        let halt = RollEnding::Halted { node: "n2".into(), message: "its Job failed".into() };
        let roll = RollHistory { started_by: String::new(), began: None, ending: halt, ..roll };
        assert_eq!(
            sentence("r", &roll, &nodes[1..]),
            "roll r: 0 of 3 nodes done, halted at 2026-03-07T22:10:00Z: its Job failed"
        );
        let document = document("r", &roll, &nodes[1..]);
        assert_eq!((&document["state"], &document["node"]), (&json!("halted"), &json!("n2")));
        assert_eq!(document["nodes"][0]["outcome"], "aborted");
    }
}
