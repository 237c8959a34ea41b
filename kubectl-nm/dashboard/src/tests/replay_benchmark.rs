//! How fast a recording of a night is replayed, and how long a seek in it takes.
//!
//! `docs/performance.md` has the command. The recording has 100,000 messages: 50 nodes drain, and one of them is open.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use serde_json::json;

use crate::message::Message;
use crate::model::Options;
use crate::model::lists::listing::Rows;
use crate::recording::format::{Header, RECORDING_VERSION, RecordedLine, RecordedMessage};
use crate::recording::recording_file::RecordingFile;
use crate::replay::pace::Pace;
use crate::replay::player::Player;
use crate::tests::scenes::{maintenance, node_messages, now, options, pod, worker_07};

const MESSAGES: u32 = 100_000;

/// How many messages there are in a second.
const RATE: u32 = 20;

/// The limit of a seek.
const LIMIT: Duration = Duration::from_millis(500);

/// The message at a position: mostly statuses, and pods of the open node.
fn message(at: u32) -> Message {
    // The first ones list everything.
    if at < 9 {
        return node_messages().remove(usize::try_from(at).unwrap());
    }
    if at.is_multiple_of(4) {
        let change =
            WatchChange::Applied(pod("web", &format!("front-{}", at % 500), "ReplicaSet/front", &json!({})));
        return Message::Pods { node: String::from("worker-07"), change };
    }
    let gone = i32::try_from(at / 200).unwrap() % 500;
    let mut object = if at.is_multiple_of(3) {
        worker_07()
    } else {
        maintenance(
            &format!("node-{:02}", at % 50),
            600,
            json!({"phase": "Running", "evictionPods": 500, "drainProgress": gone / 5}),
        )
    };
    let status = object.status.as_mut().unwrap();
    status.pod_counts.gone = gone;
    object.metadata.resource_version = Some(at.to_string());
    Message::Maintenances(WatchChange::Applied(Arc::new(object)))
}

fn write_recording(path: &std::path::Path, messages: u32) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let header = Header {
        recording: RECORDING_VERSION,
        program: String::from("0.1.0"),
        started: now(),
        context: String::from("prod"),
        nodes: vec![String::from("worker-07")],
        all_nodes: false,
    };
    writeln!(file, "{}", serde_json::to_string(&header).unwrap()).unwrap();
    for at in 0..messages {
        let time = now() + SignedDuration::from_millis(i64::from(at) * 1000 / i64::from(RATE));
        let line = RecordedLine { time, message: RecordedMessage::of(&message(at)).unwrap() };
        writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
    }
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = run();
    let took = started.elapsed();
    println!("{what:<46} {took:>10.1?}");
    (result, took)
}

#[test]
#[ignore = "a benchmark"]
fn replay_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("night.ndjson");
    write_recording(&path, MESSAGES);
    println!("{MESSAGES} messages, {} MiB", path.metadata().unwrap().len() / 1024 / 1024);
    let (file, opening) = timed("open", || RecordingFile::open(&path).unwrap());
    let options = Options { nodes: vec![String::from("worker-07")], size: (200, 50), ..options() };
    let mut player = Player::new(file, options, Pace::new(1.0));
    let mut seek = |what: &str, by: &dyn Fn(&mut Player)| {
        timed(what, || {
            by(&mut player);
            player.work(Duration::MAX);
        })
        .1
    };
    let whole = seek("from the beginning to the end", &Player::seek_to_end);
    println!("{:.0} messages a second", f64::from(MESSAGES) / whole.as_secs_f64());
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        slowest = slowest.max(seek("10 s back", &|player| player.seek_by(SignedDuration::from_secs(-10))));
    }
    for tenth in [5, 2, 9, 0, 7, 3] {
        let what = format!("to {tenth} tenths, from elsewhere");
        let took = seek(&what, &|player| player.seek_to_tenth(tenth));
        println!("{:>46} {took:?}", "");
    }
    assert!(slowest <= LIMIT && opening <= LIMIT, "10 s back takes {LIMIT:?} at most: {slowest:?}");
}

#[test]
fn the_recording_of_the_benchmark_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("night.ndjson");
    write_recording(&path, 500);
    let options = Options { nodes: vec![String::from("worker-07")], size: (200, 50), ..options() };
    let mut player = Player::new(RecordingFile::open(&path).unwrap(), options, Pace::new(1.0));
    player.seek_to_end();
    player.work(Duration::MAX);
    assert!(player.model.fleet.rows.total() > 40, "{}", player.model.fleet.rows.total());
    assert!(player.into_failure().is_none());
}
