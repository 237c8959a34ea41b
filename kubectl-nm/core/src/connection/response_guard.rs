//! Checks of every response: the first must come in time, and none may be a web page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use std::{io, pin::pin};

use http::{Response, StatusCode, header::CONTENT_TYPE};
use tokio::time::timeout;
use tower::BoxError;

/// A response that no API server sends: a web page, or a redirection to one.
#[derive(Debug, thiserror::Error)]
#[error("HTTP {0}")]
pub(crate) struct NotApiServer(pub(crate) StatusCode);

/// Checks responses. The first one proves that there is a server; later ones have no time limit.
#[derive(Clone)]
pub(super) struct ResponseGuard {
    timeout: Option<Duration>,
    has_answered: Arc<AtomicBool>,
}

impl ResponseGuard {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, has_answered: Arc::default() }
    }

    pub(super) async fn check<B>(
        self,
        response: impl Future<Output = Result<Response<B>, BoxError>>,
    ) -> Result<Response<B>, BoxError> {
        let mut response = pin!(response);
        let in_time = match self.timeout.filter(|_| !self.has_answered.load(Relaxed)) {
            None => None,
            Some(limit) => timeout(limit, &mut response).await.ok(),
        };
        let response = match in_time {
            Some(response) => response?,
            None if self.timeout.is_some() && !self.has_answered.load(Relaxed) => {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            None => response.await?,
        };
        self.has_answered.store(true, Relaxed);
        if is_page(&response) { Err(NotApiServer(response.status()).into()) } else { Ok(response) }
    }
}

/// Whether the response is meant for a browser. Refusals pass: their text explains them.
fn is_page<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    response.status().is_redirection() || (response.status().is_success() && kind.starts_with("text/html"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Instant, sleep};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(4);

    fn answer(code: u16, kind: &str) -> Result<Response<()>, BoxError> {
        Ok(Response::builder().status(code).header(CONTENT_TYPE, kind).body(())?)
    }

    async fn late(seconds: u64) -> Result<Response<()>, BoxError> {
        sleep(Duration::from_secs(seconds)).await;
        answer(200, "application/json")
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_response_has_a_timeout() {
        let limited = || ResponseGuard::new(Some(TIMEOUT));
        let guard = limited();
        let begun = Instant::now();
        assert!(guard.clone().check(pending::<Result<Response<()>, BoxError>>()).await.is_err());
        assert_eq!(begun.elapsed(), TIMEOUT);
        assert!(guard.clone().check(late(3)).await.is_ok());
        assert!(guard.check(late(60)).await.is_ok());
        assert!(ResponseGuard::new(None).check(late(60)).await.is_ok());
        // Of two concurrent requests, one is answered in time.
        let guard = limited();
        let (soon, late) = tokio::join!(guard.clone().check(late(1)), guard.check(late(60)));
        assert!(soon.is_ok() && late.is_ok());
    }

    #[tokio::test]
    async fn a_web_page_is_an_error() {
        for (code, kind, is_accepted) in [
            (200, "application/json", true),
            (200, "text/plain", true),
            (200, "text/html; charset=utf-8", false),
            (302, "text/html", false),
            (502, "text/html", true),
        ] {
            let checked = ResponseGuard::new(None).check(ready(answer(code, kind))).await;
            assert_eq!(checked.is_ok(), is_accepted, "{code} {kind}");
        }
    }
}
