//! Watches without a terminal, and their recordings.

use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{NEVER, cluster, failure, list, nodes};
use nm_core::testing::objects::{requested, with_status};
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: WatchArgs,
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_node_that_does_not_exist_warns_and_suggests_another() {
    let (cluster, _) = cluster(|_, path| match path {
        "watch" => (NEVER, Value::Null),
        "/api/v1/nodes" => nodes(&["worker-07"]),
        "/api/v1/nodes/worker-o7" => failure(404, "NotFound", "worker-o7"),
        _ => list(&[requested("n1")]),
    });
    let warning = "warning: nodes \"worker-o7\" not found; did you mean worker-07?\n";
    for (named, warned) in [("worker-o7", true), ("n1", false)] {
        let (mut out, captured) = output();
        let args = Line::parse_from(["watch", named, "--timeout", "1s"]).args;
        assert_eq!(run(args, &cluster, &mut out).await.unwrap(), Exit::TimedOut);
        assert_eq!(captured.messages().contains(warning), warned, "{}", captured.messages());
    }
}

#[tokio::test(start_paused = true)]
async fn a_recording_contains_the_change_that_ends_the_watch() {
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in [("lines", "a"), ("json", "b")] {
        // The second list is that of the recording, and takes longer.
        let lists = AtomicUsize::new(0);
        let (cluster, _) = cluster(move |_, path| match path {
            "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"
                if lists.fetch_add(1, Ordering::Relaxed) != 1 =>
            {
                list(&[with_status("n1", json!({"phase": "Succeeded"}))])
            }
            _ if path == "watch" || path.starts_with("/apis/nodemaintenance.medik8s.io/") => {
                (NEVER, Value::Null)
            }
            _ => list(&[]),
        });
        let file = folder.path().join(name);
        let line = ["watch", "n1", "--until", "drained", "-o", format, "--record"];
        let args = Line::parse_from(line.into_iter().chain(file.to_str())).args;
        assert_eq!(run(args, &cluster, &mut output().0).await.unwrap(), Exit::Done);
        let recorded = std::fs::read_to_string(file).unwrap();
        assert_eq!(recorded.matches("Succeeded").count(), 1, "{recorded}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_error_ends_with_a_done_line_for_programs() {
    for (line, list_code, before) in [
        ("", 200, 1),
        ("", 403, 0),
        ("n2 --until drained", 200, 0),
        ("n2 --until stopped", 200, 0),
        ("n2 --exit-on-complete", 200, 0),
        ("n3 --exit-on-complete", 200, 0),
        ("n1 --until drained", 200, 1),
    ] {
        let (cluster, _) = cluster(move |_, path| match path {
            "watch" => failure(403, "Forbidden", ""),
            "/api/v1/nodes/n2" => failure(404, "NotFound", "n2"),
            _ if list_code == 403 => failure(403, "Forbidden", ""),
            _ => list(&[requested("n1")]),
        });
        let line = ["watch", "-o", "json"].into_iter().chain(line.split_whitespace());
        let (mut out, captured) = output();
        assert!(run(Line::parse_from(line).args, &cluster, &mut out).await.is_err());
        let said = captured.data();
        let mut lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert_eq!(lines.by_ref().take(before).filter(|line| line["type"] == "snapshot").count(), before);
        let last = lines.next().unwrap();
        assert_eq!(
            (&last["type"], &last["exitCode"], &last["result"]),
            (&"done".into(), &1.into(), &"error".into())
        );
        assert!(lines.next().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_terminal_reports_that_nobody_leads_and_that_somebody_does_again() {
    for format in ["lines", "json"] {
        let began = tokio::time::Instant::now();
        let (cluster, _) = cluster(move |_, path| match path.rsplit('/').next() {
            Some("watch") => (NEVER, Value::Null),
            Some("nodemaintenances") => list(&[with_status("n1", json!({"phase": "Running"}))]),
            Some("leases") => {
                let is_back = began.elapsed().as_secs() > 120;
                let renewed = if is_back { Timestamp::now() } else { Timestamp::UNIX_EPOCH };
                let spec = json!({"holderIdentity": "a", "renewTime": format!("{renewed:.6}"), "leaseDurationSeconds": 15});
                let lease = json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"}, "spec": spec});
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [lease]}))
            }
            _ => failure(403, "Forbidden", "x"),
        });
        let (mut out, captured) = output();
        let args = Line::parse_from(["watch", "-o", format, "--timeout", "10m"]).args;
        assert_eq!(run(args, &cluster, &mut out).await.unwrap(), Exit::TimedOut);
        let messages = captured.messages();
        let of_leader: Vec<&str> = messages
            .lines()
            .filter_map(|line| line.find("leads").map(|_| line.split("nm-reconciler leads").last().unwrap()))
            .collect();
        let nobody = ": by this computer's clock, its lease expired at 1970-01-01T00:00:15Z";
        assert_eq!(of_leader, [nobody, " again"], "{messages}");
    }
}
