//! A watch that survives the loss of its connection and says so.

use std::time::Duration;

use futures::future::Either;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use kube::runtime::watcher::Event;
use nm_shared::NodeMaintenance;

use crate::client::cluster::Cluster;
use crate::error::Error;

/// What a watch brings.
#[derive(Debug)]
pub(crate) enum News {
    /// Something happened to a maintenance.
    Event(Box<Event<NodeMaintenance>>),
    /// The connection is lost: what is known grows old until [`News::Restored`].
    Lost(Error),
    /// The connection is back; the events before told what happened meanwhile.
    Restored,
}

/// A watch that is set up anew after each error.
struct Watching {
    cluster: Cluster,
    events: BoxStream<'static, Result<Event<NodeMaintenance>, Error>>,
    /// Errors since it last worked.
    failures: u32,
    /// Whether `events` has failed, so that it must be replaced.
    broken: bool,
    /// Whether to say that the connection is back before anything else.
    restored: bool,
}

/// Everything that happens to maintenances from now on, all that there are first. It ends with the first error that
/// time does not heal.
pub(crate) fn news(cluster: &Cluster) -> impl Stream<Item = Result<News, Error>> + use<> {
    let watching = Watching {
        cluster: cluster.clone(),
        events: cluster.watch().boxed(),
        failures: 0,
        broken: false,
        restored: false,
    };
    futures::stream::unfold(Some(watching), |watching| match watching {
        Some(watching) => Either::Left(next(watching).map(Some)),
        None => Either::Right(std::future::ready(None)),
    })
}

async fn next(mut watching: Watching) -> (Result<News, Error>, Option<Watching>) {
    if std::mem::take(&mut watching.restored) {
        return (Ok(News::Restored), Some(watching));
    }
    loop {
        if std::mem::take(&mut watching.broken) {
            // A new watch begins with a list, which tells for certain that the connection is back and misses nothing.
            tokio::time::sleep(pause(watching.failures)).await;
            watching.events = watching.cluster.watch().boxed();
        }
        match watching.events.next().await {
            Some(Ok(event)) => {
                if matches!(event, Event::InitDone) {
                    watching.restored = watching.failures > 0;
                    watching.failures = 0;
                }
                return (Ok(News::Event(Box::new(event))), Some(watching));
            }
            // The server forgot where we were; the watcher lists again by itself, and nothing was lost.
            Some(Err(error)) if error.status().is_some_and(|status| status.code == 410) => {}
            Some(Err(error)) if error.is_transient() => {
                watching.broken = true;
                watching.failures += 1;
                if watching.failures == 1 {
                    return (Ok(News::Lost(error)), Some(watching));
                }
            }
            Some(Err(error)) => return (Err(error), None),
            None => watching.broken = true,
        }
    }
}

/// How long to wait after so many failures.
fn pause(failures: u32) -> Duration {
    Duration::from_millis(500 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(10))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure, list};
    use crate::maintenance::fixture::requested;

    #[test]
    fn pauses_grow_up_to_ten_seconds() {
        let pauses: Vec<u128> = (1..9).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
    }

    /// The first pieces of news from a cluster whose watches meet these answers in turn.
    async fn told(answers: Vec<u16>, count: usize) -> Vec<String> {
        let answers = Mutex::new(answers.into_iter());
        let (cluster, _) = cluster(move |_, path| match path {
            "watch" => failure(answers.lock().unwrap().next().unwrap_or(403), "Because", ""),
            _ => list(&[requested("n1")]),
        });
        let word = |news: Result<News, Error>| match news {
            Ok(News::Event(event)) => event.to_string(),
            Ok(News::Lost(_)) => "lost".into(),
            Ok(News::Restored) => "restored".into(),
            Err(error) => error.to_string(),
        };
        news(&cluster).map(word).take(count).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_told_once_and_its_return_with_all_there_is() {
        let list = ["Init", "InitApply(n1)", "InitDone"];
        let told = told(vec![500, 503], 9).await;
        assert_eq!(told[..3], list);
        assert_eq!(told[3], "lost");
        assert_eq!(told[4..7], list);
        assert_eq!(told[7..], ["restored", "lost"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_time_does_not_heal_ends_the_news() {
        let told = told(vec![410, 403], 9).await;
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[3].starts_with("Error from server (Because)"), "{told:?}");
    }
}
