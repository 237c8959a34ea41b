//! The body of a watch: it ends when the server goes down or when a test ends it, and a test can mute it.

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use crate::faults::WatchBudget;
use crate::faults::open_watches::WatchControl;
use crate::http::lifecycle::server_state::{Shutdown, Subscription};
use crate::http::response::answer::{Body, ConnectionLost};

/// The events of a watch.
pub(crate) fn hold(body: Body, leash: WatchControl, life: Subscription) -> Body {
    let left = *leash.allowance.borrow();
    let held = WatchBody { body, leash, life, left };
    let events = stream::unfold(Some(held), async |held| {
        let mut held = held?;
        match held.next().await? {
            Ok(bytes) => Some((Ok(Frame::data(bytes)), Some(held))),
            Err(lost) => Some((Err(lost), None)),
        }
    });
    StreamBody::new(events).boxed_unsync()
}

struct WatchBody {
    body: Body,
    leash: WatchControl,
    life: Subscription,
    left: WatchBudget,
}

impl WatchBody {
    async fn next(&mut self) -> Option<Result<Bytes, ConnectionLost>> {
        loop {
            if self.left == WatchBudget::Events(0) {
                return None;
            }
            tokio::select! {
                biased;
                over = self.life.over() => return match over {
                    Shutdown::Ended => None,
                    Shutdown::Killed => Some(Err(ConnectionLost)),
                },
                // The sender is in the register of open watches.
                Ok(()) = self.leash.allowance.changed() => {
                    self.left = *self.leash.allowance.borrow_and_update();
                }
                frame = self.body.frame(), if self.left != WatchBudget::Nothing => {
                    let frame = frame?;
                    if let WatchBudget::Late(delay) = self.left {
                        // What happens meanwhile follows at once.
                        tokio::select! {
                            () = tokio::time::sleep(delay) => {}
                            _ = self.life.over() => return Some(Err(ConnectionLost)),
                        }
                    }
                    return match frame {
                        Ok(frame) => frame.into_data().ok().map(|bytes| Ok(self.cut(bytes))),
                        Err(lost) => Some(Err(lost)),
                    };
                }
            }
        }
    }

    /// At most so many events, each a line.
    fn cut(&mut self, bytes: Bytes) -> Bytes {
        let WatchBudget::Events(left) = &mut self.left else {
            return bytes;
        };
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let let_through: Vec<usize> = ends.take(*left).collect();
        *left -= let_through.len();
        bytes.slice(..let_through.last().copied().unwrap_or_default())
    }
}
