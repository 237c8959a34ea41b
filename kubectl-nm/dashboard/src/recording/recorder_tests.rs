use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use nm_core::error::Failure;

use super::format::{Header, RECORDING_VERSION};
use super::recorder::{Recorder, RecordingTarget, RecordingWriter, begin};
use super::recording_file::RecordingFile;
use crate::message::Message;
use crate::recording::error::RecordingError;
use crate::tests::scenes::{node_messages, now};

fn header() -> Header {
    Header {
        recording: RECORDING_VERSION,
        program: String::from("0.1.0"),
        started: now(),
        context: String::from("prod"),
        nodes: Vec::new(),
        all_nodes: false,
    }
}

fn nobody() -> Box<dyn FnOnce(String) + Send> {
    Box::new(|why| panic!("{why}"))
}

/// A disk with so much space.
struct Disk {
    content: Arc<Mutex<Vec<u8>>>,
    space: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut content = self.content.lock().unwrap();
        let free = self.space - content.len();
        if free == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let written = bytes.len().min(free);
        content.extend(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RecordingTarget for Disk {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.content.lock().unwrap().truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}

#[test]
fn what_was_recorded_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("night.ndjson");
    let mut recorder = Recorder::create(&path, &header()).unwrap().begin(nobody());
    for message in node_messages() {
        assert!(recorder.record(now(), &message).is_none());
    }
    recorder.record(now(), &Message::ProgramOutput(String::from("not recorded")));
    let count = node_messages().len();
    assert_eq!(recorder.finish().unwrap(), count as u64);
    let mut file = RecordingFile::open(&path).unwrap();
    assert_eq!(*file.header(), header());
    for message in node_messages() {
        let due = file.next().unwrap().unwrap();
        assert_eq!(format!("{:?}", due.message.unwrap()), format!("{message:?}"));
    }
    assert!(file.next().unwrap().is_none());
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_a_recording() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("night.ndjson");
    drop(Recorder::create(&path, &header()).unwrap());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_existing_file_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("night.ndjson");
    std::fs::write(&path, "mine").unwrap();
    let Err(error) = Recorder::create(&path, &header()) else { panic!() };
    assert!(matches!(error, RecordingError::Exists { .. }), "{error}");
    assert!(error.hint().unwrap().contains("rm "), "{error:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let missing = folder.path().join("missing").join("night.ndjson");
    assert!(matches!(Recorder::create(&missing, &header()), Err(RecordingError::Unwritable { .. })));
}

#[test]
fn a_full_disk_ends_the_recording_after_its_last_whole_line_and_is_reported() {
    let content = Arc::new(Mutex::new(Vec::new()));
    let disk = Disk { content: Arc::clone(&content), space: 300 };
    let lines = RecordingWriter { sink: disk, path: PathBuf::from("night.ndjson"), length: 0, count: 0 };
    let (to, failure) = channel();
    let mut recorder = begin(lines, Box::new(move |why| to.send(why).unwrap()));
    for message in node_messages() {
        recorder.record(now(), &message);
    }
    let why = failure.recv().unwrap();
    assert!(why.contains("night.ndjson"), "{why}");
    // Later messages are dropped.
    recorder.record(now(), &node_messages()[0]);
    assert!(matches!(recorder.finish(), Err(RecordingError::Unwritable { .. })));
    let content = String::from_utf8(content.lock().unwrap().clone()).unwrap();
    assert!(content.ends_with('\n') && content.lines().count() >= 2, "{content}");
    assert!(content.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn a_full_device_is_reported_by_its_name() {
    let full = Path::new("/dev/full");
    if full.exists() {
        let file = std::fs::OpenOptions::new().write(true).open(full).unwrap();
        let lines = RecordingWriter { sink: file, path: full.to_owned(), length: 0, count: 0 };
        let mut recorder = begin(lines, Box::new(drop));
        recorder.record(now(), &node_messages()[0]);
        let error = recorder.finish().unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }
}
