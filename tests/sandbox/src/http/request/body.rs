//! Request bodies.

use bytes::{Bytes, BytesMut};
use http::Method;
use http_body_util::BodyExt;

use crate::model::status_error::StatusError;

/// The maximum size of a body in bytes.
pub(crate) const LARGEST: usize = 3 * 1024 * 1024;

/// Reads a body. Of a body that is too large it keeps one byte too many and discards the rest, so that the client has
/// sent everything when it gets the error. A body that breaks off counts as empty.
pub(crate) async fn read<B>(body: B) -> Bytes
where
    B: BodyExt<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let mut kept = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => {
                let room = (LARGEST + 1).saturating_sub(kept.len());
                kept.extend_from_slice(&data[..data.len().min(room)]);
            }
            // Trailers are ignored.
            Ok(Err(_)) => {}
            Err(error) => {
                tracing::debug!(%error, "a request broke off");
                return Bytes::new();
            }
        }
    }
    kept.freeze()
}

/// Checks the size of a body, if the method uses it.
///
/// # Errors
/// 413 for a body that is too large.
pub(crate) fn check(method: &Method, body: &[u8]) -> Result<(), StatusError> {
    let is_read = matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
    if !is_read || body.len() <= LARGEST {
        return Ok(());
    }
    let message = format!("Request entity too large: limit is {LARGEST}");
    Err(StatusError::new(413, "RequestEntityTooLarge", message))
}
