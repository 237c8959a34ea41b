//! Records without a dashboard: beside the lines that `kubectl nm watch` prints.

use futures::future::pending;
use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::cache::MaintenanceCache;
use nm_shared::NodeMaintenance;
use tokio::sync::mpsc;

use crate::message::Message;
use crate::recording::error::RecordingError;
use crate::recording::recorded_nodes::followed;
use crate::recording::recorder::{NewRecording, Recorder};
use crate::watches::Watches;

/// How many messages may be queued; watches wait when there are more.
const MESSAGE_QUEUE: usize = 256;

/// A recording in progress. It ends when it is dropped.
pub struct HeadlessRecording {
    recorder: Recorder,
    watches: Watches,
    messages: mpsc::Receiver<Message>,
    maintenances: MaintenanceCache,
    /// The nodes on the command line, which are recorded also without a maintenance.
    nodes: Vec<String>,
}

impl HeadlessRecording {
    /// Starts to watch and record the maintenances, and the nodes that are in maintenance or in `nodes`.
    pub fn begin(recording: NewRecording, cluster: &Cluster, nodes: &[String]) -> Self {
        let (to, messages) = mpsc::channel(MESSAGE_QUEUE);
        let failures = to.clone();
        let on_failure = move |why| {
            // Without a receiver the recording is over.
            let _ = failures.blocking_send(Message::RecordingFailed(why));
        };
        let recorder = recording.begin(Box::new(on_failure));
        let mut watches = Watches::start(cluster, true, to);
        watches.follow(followed(std::iter::empty(), nodes));
        let maintenances = MaintenanceCache::default();
        Self { recorder, watches, messages, maintenances, nodes: nodes.to_vec() }
    }

    /// Records until that fails. Returns the message of the error, once.
    pub async fn until_failed(&mut self) -> String {
        while let Some(message) = self.messages.recv().await {
            if let Message::RecordingFailed(why) = message {
                return why;
            }
            if let Some(error) = self.recorder.record(Timestamp::now(), &message) {
                return error.to_string();
            }
            if let Message::Maintenances(change) = &message {
                self.maintenances.apply(change);
                let objects = self.maintenances.all().map(AsRef::as_ref);
                for node in self.watches.follow(followed(objects, &self.nodes)) {
                    self.recorder.record(Timestamp::now(), &Message::NodeClosed(node));
                }
            }
        }
        // The watches hold senders, so the channel does not close.
        pending().await
    }

    /// Records what has arrived, and the change that ended the watch of the command: the watches of the recording may not have
    /// shown it yet. Then waits until everything is written. Returns how many messages that are.
    ///
    /// # Errors
    ///
    /// If the recording could not be written completely.
    pub fn finish(self, last: Option<WatchChange<NodeMaintenance>>) -> Result<u64, RecordingError> {
        let Self { mut recorder, watches, mut messages, mut maintenances, .. } = self;
        while let Ok(message) = messages.try_recv() {
            recorder.record(Timestamp::now(), &message);
            if let Message::Maintenances(change) = &message {
                maintenances.apply(change);
            }
        }
        if let Some(last) = last.filter(|last| !maintenances.has_seen(last)) {
            recorder.record(Timestamp::now(), &Message::Maintenances(last));
        }
        // The writer may be about to report an error to nobody.
        drop((watches, messages));
        recorder.finish()
    }
}
