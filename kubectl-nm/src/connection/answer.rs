//! What every answer has to be, whatever was asked for: the first of all in time, and none a web page.

use std::time::Duration;
use std::{io, pin::pin};

use http::{Response, StatusCode, header::CONTENT_TYPE};
use tokio::time::timeout;
use tower::BoxError;

use crate::terminal::output::FirstAnswer;

/// An answer that no API server gives: a page, or a redirection to one. With its code.
#[derive(Debug, thiserror::Error)]
#[error("HTTP {0}")]
pub(crate) struct Foreign(pub(crate) StatusCode);

/// Waits for answers. One that has been given shows that there is a server, and later ones may take their time.
#[derive(Clone)]
pub(super) struct Audience {
    /// How long the first may take; `None` is as long as it likes.
    patience: Option<Duration>,
    first: FirstAnswer,
}

impl Audience {
    /// Waits for the first answer, which is noted in `first`, and for all later ones.
    pub(super) fn new(patience: Option<Duration>, first: FirstAnswer) -> Self {
        Self { patience, first }
    }

    /// The answer, as far as it is one of an API server.
    ///
    /// # Errors
    ///
    /// When there is none, it is the first and does not come in time, or it is a page.
    pub(super) async fn hear<B>(
        self,
        answer: impl Future<Output = Result<Response<B>, BoxError>>,
    ) -> Result<Response<B>, BoxError> {
        let mut answer = pin!(answer);
        let in_time = match self.patience.filter(|_| !self.first.has_come()) {
            None => None,
            Some(patience) => timeout(patience, &mut answer).await.ok(),
        };
        let answer = match in_time {
            Some(answer) => answer?,
            None if self.patience.is_some() && !self.first.has_come() => {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            None => answer.await?,
        };
        self.first.note();
        if is_page(&answer) { Err(Foreign(answer.status()).into()) } else { Ok(answer) }
    }
}

/// Whether somebody is to look at it in a browser. What refuses may be looked at further: its text tells more.
fn is_page<B>(answer: &Response<B>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    answer.status().is_redirection() || (answer.status().is_success() && kind.starts_with("text/html"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Instant, sleep};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(4);

    fn answer(code: u16, kind: &str) -> Result<Response<()>, BoxError> {
        Ok(Response::builder().status(code).header(CONTENT_TYPE, kind).body(())?)
    }

    async fn late(seconds: u64) -> Result<Response<()>, BoxError> {
        sleep(Duration::from_secs(seconds)).await;
        answer(200, "application/json")
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_answer_is_limited() {
        let patient = || Audience::new(Some(PATIENCE), FirstAnswer::default());
        let audience = patient();
        let begun = Instant::now();
        assert!(audience.clone().hear(pending::<Result<Response<()>, BoxError>>()).await.is_err());
        assert_eq!(begun.elapsed(), PATIENCE);
        assert!(audience.clone().hear(late(3)).await.is_ok());
        assert!(audience.hear(late(60)).await.is_ok());
        assert!(Audience::new(None, FirstAnswer::default()).hear(late(60)).await.is_ok());
        // Two are asked for at once, and one of them is answered.
        let audience = patient();
        let (soon, late) = tokio::join!(audience.clone().hear(late(1)), audience.hear(late(60)));
        assert!(soon.is_ok() && late.is_ok());
    }

    #[tokio::test]
    async fn a_page_is_no_answer() {
        for (code, kind, is_answer) in [
            (200, "application/json", true),
            (200, "text/plain", true),
            (200, "text/html; charset=utf-8", false),
            (302, "text/html", false),
            (502, "text/html", true),
        ] {
            let heard = Audience::new(None, FirstAnswer::default()).hear(ready(answer(code, kind))).await;
            assert_eq!(heard.is_ok(), is_answer, "{code} {kind}");
        }
    }
}
