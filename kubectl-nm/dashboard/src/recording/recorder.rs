//! Writes a recording, in a thread of its own: a slow disk delays no key and no frame.
//!
//! Each line is written at once and as a whole, so that a recording is complete up to its last line however the program ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;

use crate::message::Message;
use crate::recording::error::RecordingError;
use crate::recording::format::{Header, RecordedLine, RecordedMessage};

/// How many messages wait for the disk at most.
const QUEUE: usize = 8192;

/// After so long without a message, a line shows that the recording continued.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);

/// Where the lines go.
pub(crate) trait RecordingTarget: Write + Send + 'static {
    /// Removes what was written after so many bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl RecordingTarget for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.seek(io::SeekFrom::Start(length)).map(drop)
    }
}

/// A recording in progress, which a thread writes.
pub struct Recorder {
    path: PathBuf,
    to: Option<SyncSender<RecordedLine>>,
    writer: JoinHandle<Result<u64, RecordingError>>,
    is_too_slow: bool,
}

/// Told once when a recording ends early, with the message of the error.
type OnFailure = Box<dyn FnOnce(String) + Send>;

impl Recorder {
    /// Creates the file, which must not exist yet and which only its owner can read, and writes the first line.
    ///
    /// # Errors
    ///
    /// If the file exists already ([`RecordingError::Exists`]), or if it cannot be written.
    pub fn create(path: &Path, header: &Header) -> Result<NewRecording, RecordingError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => RecordingError::Exists { path: path.display().to_string() },
            _ => RecordingError::Unwritable { path: path.display().to_string(), source },
        })?;
        let mut lines = RecordingWriter { sink: file, path: path.to_owned(), length: 0, count: 0 };
        lines.write(header)?;
        Ok(NewRecording(lines))
    }

    /// Records a message that comes from the cluster. Returns an error if that ends the recording.
    pub(crate) fn record(&mut self, at: Timestamp, message: &Message) -> Option<RecordingError> {
        let (to, message) = (self.to.as_ref()?, RecordedMessage::of(message)?);
        match to.try_send(RecordedLine { time: at, message }) {
            Ok(()) => None,
            // The writer has reported why it ended.
            Err(TrySendError::Disconnected(_)) => {
                self.to = None;
                None
            }
            Err(TrySendError::Full(_)) => {
                self.to = None;
                self.is_too_slow = true;
                Some(self.too_slow())
            }
        }
    }

    fn too_slow(&self) -> RecordingError {
        RecordingError::TooSlow { path: self.path.display().to_string() }
    }

    /// Waits until everything is written. Returns how many messages that are.
    pub(crate) fn finish(mut self) -> Result<u64, RecordingError> {
        self.to = None;
        let too_slow = self.is_too_slow.then(|| self.too_slow());
        let written = self.writer.join().unwrap_or_else(|_| {
            let path = self.path.display().to_string();
            Err(RecordingError::Unwritable { path, source: io::Error::other("its writer panicked") })
        })?;
        too_slow.map_or(Ok(written), Err)
    }
}

/// A recording that has only its first line.
pub struct NewRecording(RecordingWriter<File>);

impl NewRecording {
    /// Begins to record. `on_failure` is called if the recording ends early.
    pub(crate) fn begin(self, on_failure: OnFailure) -> Recorder {
        begin(self.0, on_failure)
    }
}

pub(super) fn begin<S: RecordingTarget>(lines: RecordingWriter<S>, on_failure: OnFailure) -> Recorder {
    let (to, from) = sync_channel(QUEUE);
    let path = lines.path.clone();
    let writer =
        std::thread::spawn(move || lines.write_all(&from).inspect_err(|error| on_failure(error.to_string())));
    Recorder { path, to: Some(to), writer, is_too_slow: false }
}

/// The lines of a file.
pub(crate) struct RecordingWriter<S> {
    pub(super) sink: S,
    pub(super) path: PathBuf,
    /// The bytes of whole lines.
    pub(super) length: u64,
    pub(super) count: u64,
}

impl<S: RecordingTarget> RecordingWriter<S> {
    fn write_all(mut self, from: &Receiver<RecordedLine>) -> Result<u64, RecordingError> {
        loop {
            let line = match from.recv_timeout(IDLE_INTERVAL) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    RecordedLine { time: Timestamp::now(), message: RecordedMessage::Idle }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(self.count),
            };
            self.count += u64::from(!matches!(line.message, RecordedMessage::Idle));
            self.write(&line)?;
        }
    }

    /// Writes a line. After an error, the file ends with the line before.
    fn write(&mut self, line: &impl serde::Serialize) -> Result<(), RecordingError> {
        let unwritable =
            |source| RecordingError::Unwritable { path: self.path.display().to_string(), source };
        let mut bytes = serde_json::to_vec(line).map_err(|error| unwritable(error.into()))?;
        bytes.push(b'\n');
        if let Err(source) = self.sink.write_all(&bytes).and_then(|()| self.sink.flush()) {
            // If that fails too, a replay leaves out the line that is cut off.
            let _ = self.sink.cut(self.length);
            return Err(unwritable(source));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}
