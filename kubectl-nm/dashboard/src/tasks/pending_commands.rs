//! Commands that are still running when the dashboard ends: their results are awaited and reported.

use std::pin::pin;
use std::time::Duration;

use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::message::{CommandError, Message};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait before saying so.
const NOTICE_DELAY: Duration = Duration::from_millis(500);

/// Waits for running commands and returns their results: a maintenance started just before leaving is still started,
/// and a failure is reported. `end` ends the wait early. `flags` select the same cluster, each with a blank before it.
pub(crate) async fn await_results(
    mut commands: JoinSet<()>,
    messages: &mut mpsc::Receiver<Message>,
    end: impl Future<Output = ()>,
    flags: &str,
    out: &mut Output,
) -> Vec<Result<String, CommandError>> {
    let mut results = Vec::new();
    let started = Instant::now();
    let mut silent = true;
    let mut end = pin!(end);
    loop {
        tokio::select! {
            biased;
            Some(message) = messages.recv() => if let Message::Answered { outcome, .. } = message {
                results.push(outcome);
            },
            ended = commands.join_next() => if ended.is_none() {
                return results;
            },
            () = sleep_until(started + NOTICE_DELAY), if silent => {
                silent = false;
                out.message(&Line::new("waiting for the API server to answer"));
            },
            () = &mut end => break,
            () = sleep_until(started + COMMAND_TIMEOUT) => break,
        }
    }
    results.push(Err(CommandError::NoAnswer { flags: flags.to_owned() }));
    results
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use nm_core::terminal::output::captured::output;

    use super::*;

    /// Leaves while a command runs that takes so many seconds. Returns the results and the text on standard error.
    async fn leave(
        seconds: u64,
        end: impl Future<Output = ()>,
    ) -> (Vec<Result<String, CommandError>>, String) {
        let (mut out, captured) = output();
        let (to, mut messages) = mpsc::channel(1);
        // A full channel must not block the command.
        to.send(Message::ProgramOutput(String::new())).await.unwrap();
        let mut commands = JoinSet::new();
        commands.spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let _ = to.send(Message::Answered { id: 1, outcome: Err(CommandError::refused("n1")) }).await;
        });
        (await_results(commands, &mut messages, end, " --context=c", &mut out).await, captured.messages())
    }

    #[tokio::test(start_paused = true)]
    async fn the_result_of_a_running_command_is_reported_after_leaving() {
        let waiting = "waiting for the API server to answer\n";
        for (seconds, text) in [(0, ""), (3, waiting)] {
            let (done, messages) = leave(seconds, pending()).await;
            assert!(matches!(&done[..], [Err(CommandError::Refused { .. })]), "{done:?}");
            assert_eq!(messages, text, "{seconds}");
        }
        let unknown = |done: &[Result<String, CommandError>]| {
            let [Err(error)] = done else { panic!("{done:?}") };
            let error = error.to_string();
            error.contains("may have succeeded") && error.contains("kubectl nm status --context=c")
        };
        let started = Instant::now();
        assert!(unknown(&leave(60, pending()).await.0));
        assert_eq!(started.elapsed(), COMMAND_TIMEOUT);
        assert!(unknown(&leave(60, ready(())).await.0));
        assert_eq!(started.elapsed(), COMMAND_TIMEOUT, "another signal ends the wait");
    }
}
