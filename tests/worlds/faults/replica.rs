//! A replica of the reconciler in this process, and its connection to the sandbox: what it sends is recorded with its
//! body, and it can be killed at any moment.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use jiff::Timestamp;
use kube_sandbox::http::{Body as Answer, ConnectionLost};
use kube_sandbox::server::Service;
use nm_reconciler::in_process::{Clock, Leader};
use serde_json::Value;
use tokio::sync::watch;
use tower::Service as _;

/// A write that a replica sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) replica: u64,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
    pub(crate) began: Timestamp,
    /// When it was answered; none while it is in flight, and for good if its replica is killed.
    pub(crate) ended: Option<Timestamp>,
    /// The status code; zero if the connection was lost.
    pub(crate) code: u16,
    /// What was seen of the cluster when it was sent.
    pub(crate) context: Value,
}

/// What is known about a write when it is sent.
pub(crate) type Judge = Arc<dyn Fn(&Method, &str) -> Value + Send + Sync>;

/// Where a replica reports that it fails.
pub(crate) type Report = Arc<dyn Fn(String) + Send + Sync>;

/// Everything that all replicas wrote.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writes(Arc<Mutex<Vec<Sent>>>);

impl Writes {
    pub(crate) fn all(&self) -> Vec<Sent> {
        self.0.lock().unwrap().clone()
    }

    /// Forgets all, while none is in flight.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap().clear();
    }

    fn begin(&self, sent: Sent) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(sent);
        all.len() - 1
    }

    fn answer(&self, at: usize, code: u16) {
        self.0.lock().unwrap()[at].code = code;
    }

    fn end(&self, at: usize, now: Timestamp) {
        self.0.lock().unwrap()[at].ended.get_or_insert(now);
    }

    /// Ends the requests of a replica that are in flight: nobody waits for them any more.
    fn abandon(&self, replica: u64, now: Timestamp) {
        for sent in self.0.lock().unwrap().iter_mut().filter(|sent| sent.replica == replica) {
            sent.ended.get_or_insert(now);
        }
    }
}

/// A connection of one replica.
#[derive(Clone)]
struct Link {
    replica: u64,
    server: Service,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    context: Judge,
    writes: Writes,
    requests: usize,
    max_requests: usize,
    report: Report,
    killed: watch::Receiver<bool>,
}

/// Resolves once the replica is killed.
async fn killed(mut killed: watch::Receiver<bool>) {
    if killed.wait_for(|killed| *killed).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl tower::Service<Request<kube::client::Body>> for Link {
    type Response = Response<UnsyncBoxBody<Bytes, ConnectionLost>>;
    type Error = ConnectionLost;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectionLost>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionLost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        self.requests += 1;
        if self.requests == self.max_requests {
            (self.report)(format!("replica {} sends requests without end", self.replica));
        }
        let link = self.clone();
        Box::pin(async move {
            if *link.killed.borrow() || link.requests >= link.max_requests {
                return std::future::pending().await;
            }
            let gone = link.killed.clone();
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let in_flight = (head.method != Method::GET).then(|| link.begin(&head, &body));
            let entry = in_flight.as_ref().map(|write| write.at);
            // A request that was sent takes effect even if nobody waits for its answer any more.
            let answered = tokio::spawn(link.send(Request::from_parts(head, Full::new(body)), entry));
            tokio::select! {
                biased;
                () = killed(gone) => std::future::pending().await,
                answer = answered => {
                    drop(in_flight);
                    answer.unwrap_or(Err(ConnectionLost))
                }
            }
        })
    }
}

/// A write that somebody waits for.
struct InFlight {
    link: Link,
    at: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.link.writes.end(self.at, (self.link.now)());
    }
}

impl Link {
    fn begin(&self, head: &Parts, body: &Bytes) -> InFlight {
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let at = self.writes.begin(Sent {
            replica: self.replica,
            context: (self.context)(&method, &path),
            method,
            path,
            body: serde_json::from_slice(body).unwrap_or_default(),
            began: (self.now)(),
            ended: None,
            code: 0,
        });
        InFlight { link: self.clone(), at }
    }

    async fn send(
        mut self,
        mut request: Request<Full<Bytes>>,
        entry: Option<usize>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, ConnectionLost>>, ConnectionLost> {
        let agent = format!("nm-reconciler/test (replica-{})", self.replica);
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_str(&agent).unwrap());
        let answer = self.server.call(request).await;
        if let (Some(entry), Ok(answer)) = (entry, &answer) {
            self.writes.answer(entry, answer.status().as_u16());
        }
        Ok(answer?.map(|body| until_killed(body, self.killed)))
    }
}

/// A body that is silent for good once the replica is killed.
fn until_killed(body: Answer, gone: watch::Receiver<bool>) -> UnsyncBoxBody<Bytes, ConnectionLost> {
    let frames = stream::unfold(Some(body), move |body| {
        let gone = gone.clone();
        async move {
            let mut body = body?;
            let frame = tokio::select! {
                biased;
                () = killed(gone) => {
                    drop(body);
                    return std::future::pending().await;
                }
                frame = body.frame() => frame?,
            };
            match frame {
                Ok(frame) => Some((Ok(Frame::data(frame.into_data().unwrap_or_default())), Some(body))),
                Err(lost) => Some((Err(lost), None)),
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A running replica that leads.
pub(crate) struct Replica {
    number: u64,
    leader: Leader,
    kill: watch::Sender<bool>,
    writes: Writes,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// What a replica is started with.
pub(crate) struct Surroundings<'a> {
    pub(crate) number: u64,
    pub(crate) server: Service,
    pub(crate) flags: &'a [&'static str],
    pub(crate) max_requests: usize,
    pub(crate) clock: Clock,
    pub(crate) now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub(crate) context: Judge,
    pub(crate) writes: Writes,
    /// Called if it sends requests without end, or one of its tasks ends.
    pub(crate) report: Report,
}

impl Replica {
    /// Starts a replica that leads at once.
    pub(crate) fn start(with: Surroundings<'_>) -> Self {
        let (kill, killed) = watch::channel(false);
        let Surroundings { number, server, flags, max_requests, clock, now, context, writes, report } = with;
        let link = Link {
            replica: number,
            server,
            now: now.clone(),
            context,
            writes: writes.clone(),
            requests: 0,
            max_requests,
            report: report.clone(),
            killed,
        };
        let leader = Leader::start(link, flags, clock, move |exit| report(exit)).unwrap();
        Self { number, leader, kill, writes, now }
    }

    /// Ends its right to write. It still reads, and waits for no write.
    pub(crate) fn lose_leadership(&self) {
        self.leader.close_fence();
        self.writes.abandon(self.number, (self.now)());
    }
}

impl Drop for Replica {
    /// Kills it: it sends nothing more, and receives nothing more.
    fn drop(&mut self) {
        self.kill.send_replace(true);
        self.writes.abandon(self.number, (self.now)());
    }
}
