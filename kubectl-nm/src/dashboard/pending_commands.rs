//! What is left to do when the screen is given back: commands that are under way are waited for, and what became of them
//! is told.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::dashboard::message::Message;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

/// How long commands that are under way may take when the dashboard ends.
const LAST_COMMANDS: Duration = Duration::from_secs(10);

/// How long they may take before somebody wonders.
const SILENCE: Duration = Duration::from_millis(500);

/// What becomes of the commands that are under way: whoever starts a maintenance and leaves at once wants it started all
/// the same, and to know if it was not. `flags` lead to the same cluster, each with a blank before it.
pub(super) async fn last_answers(
    mut commands: JoinSet<()>,
    messages: &mut mpsc::Receiver<Message>,
    end: impl Future<Output = ()>,
    flags: &str,
    out: &mut Output,
) -> Vec<Result<String, String>> {
    let mut done = Vec::new();
    let begun = Instant::now();
    let mut patient = true;
    let mut end = pin!(end);
    loop {
        tokio::select! {
            biased;
            Some(message) = messages.recv() => if let Message::Done(outcome) = message {
                done.push(outcome);
            },
            ended = commands.join_next() => if ended.is_none() {
                return done;
            },
            () = sleep_until(begun + SILENCE), if patient => {
                patient = false;
                out.talk(&Line::new("waiting for what was started or stopped to be answered"));
            },
            () = &mut end => break,
            () = sleep_until(begun + LAST_COMMANDS) => break,
        }
    }
    done.push(Err(format!(
        "error: no answer to what was started or stopped, which may be done or not; \
         `kubectl nm status{flags}` tells"
    )));
    done
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::terminal::output::captured::output;

    /// A command that takes so many seconds, and what is left to say when somebody leaves meanwhile.
    async fn leave(seconds: u64, end: impl Future<Output = ()>) -> (Vec<Result<String, String>>, String) {
        let (mut out, captured) = output();
        let (to, mut messages) = mpsc::channel(1);
        // A full channel holds nobody up.
        to.send(Message::Overheard(String::new())).await.unwrap();
        let mut commands = JoinSet::new();
        commands.spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let _ = to.send(Message::Done(Err(String::from("forbidden")))).await;
        });
        (last_answers(commands, &mut messages, end, " --context=c", &mut out).await, captured.talk())
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_at_once_learns_what_became_of_the_command() {
        let waiting = "waiting for what was started or stopped to be answered\n";
        for (seconds, said) in [(0, ""), (3, waiting)] {
            let (done, talk) = leave(seconds, pending()).await;
            assert_eq!((done, talk.as_str()), (vec![Err(String::from("forbidden"))], said), "{seconds}");
        }
        let unknown = |done: &[Result<String, String>]| matches!(done, [Err(words)] if words.ends_with("may be done or not; `kubectl nm status --context=c` tells"));
        let begun = Instant::now();
        assert!(unknown(&leave(60, pending()).await.0));
        assert_eq!(begun.elapsed(), LAST_COMMANDS);
        assert!(unknown(&leave(60, ready(())).await.0));
        assert_eq!(begun.elapsed(), LAST_COMMANDS, "whoever insists waits no longer");
    }
}
