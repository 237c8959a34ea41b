use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use serde_json::json;
use tokio::time::Instant;
use tower::service_fn;

use super::*;
use crate::telemetry::readiness::Readiness;

/// An answer of the API server to a list or a watch.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// A list of nothing.
    Empty,
    /// A watch without events that never ends.
    Silence,
    /// 403 with this message.
    Refused(&'static str),
    /// 500.
    Broken,
}

type Requests = Arc<Mutex<Vec<String>>>;

/// Nodes of an API server that gives these answers in turn, the last one repeatedly, and the requests it received.
fn nodes(answers: &'static [Answer]) -> (Api<Node>, Requests) {
    let requests = Requests::default();
    let log = requests.clone();
    let server = service_fn(move |request: Request<kube::client::Body>| {
        let mut log = log.lock().unwrap();
        let answer = answers[log.len().min(answers.len() - 1)];
        log.push(request.uri().query().unwrap_or_default().to_owned());
        async move { Ok::<_, Infallible>(response(answer)) }
    });
    (Api::all(Client::new(server, "default")), requests)
}

fn response(answer: Answer) -> Response<Body> {
    let status = |code: u16, message: &str| {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": ""});
        (code, Body::from(status.to_string().into_bytes()))
    };
    let (code, body) = match answer {
        Answer::Empty => {
            let list = json!({"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": []});
            (200, Body::from(list.to_string().into_bytes()))
        }
        Answer::Silence => (200, Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>())),
        Answer::Refused(message) => status(403, message),
        Answer::Broken => status(500, "broken"),
    };
    Response::builder().status(code).body(body).unwrap()
}

fn is_watch(query: &str) -> bool {
    query.contains("watch=true")
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_beyond_its_timeout_resumes_where_it_was() {
    let (api, asked) = nodes(&[Answer::Empty, Answer::Silence, Answer::Silence, Answer::Silence]);
    let begun = Instant::now();
    let watch = tokio::spawn(run_watch("nodes", None, watch_stream(api, watcher::Config::default()), |_| ()));
    while asked.lock().unwrap().len() < 4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(begun.elapsed() <= SILENCE_TIMEOUT * 2, "{:?}", begun.elapsed());
    let asked = asked.lock().unwrap().clone();
    assert!(!is_watch(&asked[0]));
    for watch in &asked[1..] {
        assert!(is_watch(watch) && watch.contains("resourceVersion=7"), "{watch}");
        assert!(watch.contains("timeoutSeconds=30"), "{watch}");
    }
    watch.abort();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_passed_on_once_and_the_check_passes_again_after_a_list() {
    let (api, asked) = nodes(&[
        Answer::Empty,
        Answer::Broken,
        Answer::Refused("no"),
        Answer::Refused("no"),
        Answer::Refused("not you"),
        Answer::Empty,
        Answer::Refused("no"),
        Answer::Refused("no"),
        Answer::Empty,
        Answer::Silence,
    ]);
    let readiness = Readiness::default();
    let check = readiness.check("nodes");
    let mut updates = Vec::new();
    let watch = run_watch("nodes", Some(check), watch_stream(api, watcher::Config::default()), |update| {
        let report = readiness.report().lines;
        let state = report.lines().next().unwrap().to_owned();
        let what = match update {
            WatchUpdate::Applied(_) | WatchUpdate::Deleted(_) => "changed".to_owned(),
            WatchUpdate::Listed(_) => "listed".to_owned(),
            WatchUpdate::Interrupted => "interrupted".to_owned(),
            WatchUpdate::Forbidden(refusal) => refusal.to_string(),
        };
        updates.push((what, state));
    });
    let all = async {
        while asked.lock().unwrap().len() < 10 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = watch => unreachable!(),
        () = all => {}
    }
    let (ok, refused) = ("[+]nodes ok", "[-]nodes failed: the API server refuses to list them");
    let interrupted = ("interrupted", "[-]nodes failed: the watch is interrupted");
    let expected = [
        ("listed", ok),
        interrupted,
        ("no", refused),
        ("not you", refused),
        ("listed", ok),
        interrupted,
        ("no", refused),
        ("listed", ok),
    ];
    assert_eq!(updates, expected.map(|(what, state)| (what.to_owned(), state.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn where_only_lists_are_allowed_each_list_is_passed_on_and_one_interruption_is_logged() {
    let (api, asked) = nodes(&[
        Answer::Empty,
        Answer::Refused("no"),
        Answer::Empty,
        Answer::Refused("no"),
        Answer::Empty,
        Answer::Silence,
    ]);
    let mut updates = Vec::new();
    let watch = run_watch(
        "nodes",
        None,
        watch_stream(api, watcher::Config::default()),
        |update: WatchUpdate<Node>| {
            if !matches!(update, WatchUpdate::Interrupted) {
                updates.push(matches!(update, WatchUpdate::Listed(_)));
            }
        },
    );
    let all = async {
        while asked.lock().unwrap().len() < 6 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = watch => unreachable!(),
        () = all => {}
    }
    assert_eq!(updates, [true; 3]);

    let mut health = WatchHealth::new("nodes", None);
    let mut interrupted_after = |event: WatchResult<Node>| {
        health.record(&event);
        health.is_interrupted
    };
    let refused = || Err(watcher::Error::WatchStartFailed(kube::Error::LinesCodecMaxLineLengthExceeded));
    assert!(!interrupted_after(Ok(watcher::Event::InitDone)));
    for _ in 0..2 {
        assert!(interrupted_after(refused()));
        assert!(
            interrupted_after(Ok(watcher::Event::InitDone)),
            "a list alone does not show that the watch has resumed"
        );
    }
    assert!(!interrupted_after(Ok(watcher::Event::Apply(Node::default()))));
    assert!(interrupted_after(Err(watcher::Error::NoResourceVersion)));
    assert!(!interrupted_after(Ok(watcher::Event::InitDone)));
}
