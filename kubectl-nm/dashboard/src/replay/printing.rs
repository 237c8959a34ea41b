//! A replay without a terminal: the events of the recorded watch on maintenances, for the lines that `watch` prints.

use std::cell::Cell;
use std::ops::ControlFlow;

use jiff::Timestamp;
use nm_core::client::watch_stream::WatchUpdate;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::watch::event_loop::LoopEvent;
use tokio::time::sleep;

use crate::message::Message;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::recording::error::RecordingError;
use crate::recording::recording_file::RecordingFile;

/// Passes every event to `react`, with the recorded time in `clock`: as fast as possible, or at this speed.
///
/// # Errors
///
/// If a line of the recording cannot be read, or if `react` fails.
pub async fn print(
    file: &mut RecordingFile,
    speed: Option<f64>,
    clock: &Cell<Timestamp>,
    mut react: impl FnMut(LoopEvent) -> Result<ControlFlow<Exit>, Error>,
) -> Result<(), Error> {
    clock.set(file.header().started);
    while let Some(due) = file.next()? {
        if let Some(speed) = speed {
            let seconds = due.time.duration_since(clock.get()).as_secs_f64() / speed;
            // A pause of years is a clock that was set.
            sleep(std::time::Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()).await;
        }
        clock.set(due.time.max(clock.get()));
        let Some(event) = due.message.and_then(event) else { continue };
        if react(event)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn event(message: Message) -> Option<LoopEvent> {
    Some(LoopEvent::Watch(match message {
        Message::Maintenances(change) => WatchUpdate::Change(change),
        Message::Watch { kind: WatchKind::Maintenances, state, .. } => match state {
            WatchState::Live => WatchUpdate::Live,
            WatchState::Lost { since, .. } => {
                WatchUpdate::Lost { since, error: RecordingError::ConnectionLost.into() }
            }
            _ => return None,
        },
        _ => return None,
    }))
}
