//! A replay on the terminal. Nothing is drawn and no clock runs while it is paused.

use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use nm_core::error::Error;
use nm_shared::api::latency_budget::FRAME_INTERVAL;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use crate::message::Effect;
use crate::replay::keys;
use crate::replay::player::Player;
use crate::run::{EndReason, is_ctrl_c};
use crate::screen::redraw::Redraw;
use crate::screen::signals::{self, Signal};
use crate::screen::terminal::Screen;
use crate::view;

/// For how long messages are applied before keys are read and a frame is drawn.
const BUDGET: Duration = Duration::from_millis(20);

/// How many messages of other programs may be queued.
const QUEUE: usize = 16;

/// Runs a replay until the user ends it. Takes the screen and releases it.
///
/// # Errors
///
/// If the terminal cannot be used ([`Error::Screen`]).
pub async fn run(player: &mut Player) -> Result<EndReason, Error> {
    let mut signals = signals::listen().map_err(Error::Screen)?;
    let (program_output, _nobody) = mpsc::channel(QUEUE);
    let mut screen = Screen::take(program_output).map_err(Error::Screen)?;
    let (width, height) = screen.size().map_err(Error::Screen)?;
    player.input(Event::Resize(width, height));
    let mut inputs = EventStream::new();
    let mut redraw = Redraw::default();
    redraw.now();
    let mut last = Instant::now();
    loop {
        if redraw.is_due() {
            screen.draw(|frame| view::draw(&player.model, frame)).map_err(Error::Screen)?;
            redraw.done();
        }
        let is_playing = !player.pace.is_paused && !player.has_ended();
        let is_seeking = player.is_seeking();
        let input = tokio::select! {
            biased;
            Some(signal) = signals.next() => {
                match signal {
                    Signal::End | Signal::Interrupt => return Ok(EndReason::Interrupted),
                    Signal::Stop => screen.suspend().map_err(Error::Screen)?,
                    Signal::Continue => screen.retake().map_err(Error::Screen)?,
                }
                last = Instant::now();
                redraw.now();
                continue;
            }
            input = inputs.next() => match input {
                Some(Ok(input)) if is_ctrl_c(&input) => return Ok(EndReason::Interrupted),
                Some(Ok(input)) => input,
                // The terminal is gone.
                Some(Err(_)) | None => return Ok(EndReason::Interrupted),
            },
            () = redraw.wait() => continue,
            () = yield_now(), if is_seeking => {
                player.work(BUDGET);
                last = Instant::now();
                redraw.soon();
                continue;
            }
            () = sleep_until(last + FRAME_INTERVAL), if is_playing => {
                pass(player, &mut last);
                redraw.soon();
                continue;
            }
        };
        if is_playing {
            pass(player, &mut last);
        }
        last = Instant::now();
        redraw.now();
        match press(player, input) {
            Some(Effect::Quit) => return Ok(EndReason::Quit),
            Some(Effect::Copy(text)) => screen.copy(&text).map_err(Error::Screen)?,
            Some(Effect::Suspend) => {
                screen.suspend().map_err(Error::Screen)?;
                last = Instant::now();
            }
            _ => {}
        }
    }
}

/// Lets the time since the last time pass in the recording.
fn pass(player: &mut Player, last: &mut Instant) {
    let now = Instant::now();
    player.pass(now.duration_since(*last));
    *last = now;
    player.work(BUDGET);
}

fn press(player: &mut Player, input: Event) -> Option<Effect> {
    if let Event::Key(key) = &input
        && keys::press(player, *key)
    {
        player.work(BUDGET);
        return None;
    }
    player.input(input)
}
