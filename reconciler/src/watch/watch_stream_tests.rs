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

/// What the API server answers to a list or a watch, one after another; the last stays.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// A list of nothing.
    Empty,
    /// A watch that says nothing and never ends.
    Silence,
    /// 403 with this message.
    Refused(&'static str),
    /// 500.
    Broken,
}

type Asked = Arc<Mutex<Vec<String>>>;

/// Nodes by an API server with these answers, and what it was asked.
fn nodes(answers: &'static [Answer]) -> (Api<Node>, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let server = service_fn(move |request: Request<kube::client::Body>| {
        let mut log = log.lock().unwrap();
        let answer = answers[log.len().min(answers.len() - 1)];
        log.push(request.uri().query().unwrap_or_default().to_owned());
        async move { Ok::<_, Infallible>(response(answer)) }
    });
    (Api::all(Client::new(server, "default")), asked)
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
async fn a_watch_that_is_silent_beyond_its_end_is_begun_anew_where_it_was() {
    let (api, asked) = nodes(&[Answer::Empty, Answer::Silence, Answer::Silence, Answer::Silence]);
    let begun = Instant::now();
    let watch = tokio::spawn(follow("nodes", None, watched(api, watcher::Config::default()), |_| ()));
    while asked.lock().unwrap().len() < 4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(begun.elapsed() <= SILENCE * 2, "{:?}", begun.elapsed());
    let asked = asked.lock().unwrap().clone();
    assert!(!is_watch(&asked[0]));
    for watch in &asked[1..] {
        assert!(is_watch(watch) && watch.contains("resourceVersion=7"), "{watch}");
        assert!(watch.contains("timeoutSeconds=30"), "{watch}");
    }
    watch.abort();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_once_and_the_check_holds_again_once_all_is_listed() {
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
    let mut told = Vec::new();
    let watch = follow("nodes", Some(check), watched(api, watcher::Config::default()), |news| {
        let report = readiness.report().unwrap_or_else(|report| report);
        let state = report.lines().next().unwrap().to_owned();
        let what = match news {
            News::Changed(_) => "changed".to_owned(),
            News::Listed => "listed".to_owned(),
            News::Interrupted => "interrupted".to_owned(),
            News::Forbidden(sentence) => sentence,
        };
        told.push((what, state));
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
    assert_eq!(told, expected.map(|(what, state)| (what.to_owned(), state.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn who_may_list_and_not_watch_is_told_of_all_there_is_again_and_again_and_of_the_trouble_once() {
    let (api, asked) = nodes(&[
        Answer::Empty,
        Answer::Refused("no"),
        Answer::Empty,
        Answer::Refused("no"),
        Answer::Empty,
        Answer::Silence,
    ]);
    let mut told = Vec::new();
    let watch = follow("nodes", None, watched(api, watcher::Config::default()), |news: News<'_, Node>| {
        if !matches!(news, News::Interrupted) {
            told.push(matches!(news, News::Listed));
        }
    });
    let all = async {
        while asked.lock().unwrap().len() < 6 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = watch => unreachable!(),
        () = all => {}
    }
    assert_eq!(told, [true; 3]);

    let mut interruption = Interruption::of("nodes", None);
    let mut noted = |event: Event<Node>| {
        interruption.note(&event);
        interruption.interrupted
    };
    let refused = || Err(watcher::Error::WatchStartFailed(kube::Error::LinesCodecMaxLineLengthExceeded));
    assert!(!noted(Ok(watcher::Event::InitDone)));
    for _ in 0..2 {
        assert!(noted(refused()));
        assert!(noted(Ok(watcher::Event::InitDone)), "the list alone does not say that it goes on");
    }
    assert!(!noted(Ok(watcher::Event::Apply(Node::default()))));
    assert!(noted(Err(watcher::Error::NoResourceVersion)));
    assert!(!noted(Ok(watcher::Event::InitDone)));
}
