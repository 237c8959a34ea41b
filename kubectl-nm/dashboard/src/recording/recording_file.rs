//! Reads a recording, one line at a time: a recording may be larger than the memory.
//!
//! At first the times of all lines are read, for the length of the recording; messages are decoded only when they are due.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::message::Message;
use crate::recording::error::RecordingError;
use crate::recording::format::{Header, RECORDING_VERSION, RecordedLine};

/// The bytes of a line at most. A list of 10,000 pods has a tenth of that.
const MAX_LINE: u64 = 256 * 1024 * 1024;

const BUFFER: usize = 256 * 1024;

/// How a recorder begins each line.
const TIME_FIRST: &[u8] = b"{\"time\":\"";

/// Where the bytes come from.
pub trait Source: BufRead + Seek {}

impl<S: BufRead + Seek> Source for S {}

/// A place between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    offset: u64,
    /// The lines before it.
    line: u64,
    /// The time of the line before it. Time does not go backwards, although the clock of the computer may have.
    time: Timestamp,
}

/// A message and its time.
pub(crate) struct Due {
    pub(crate) time: Timestamp,
    /// None if the line only shows that the recording continued.
    pub(crate) message: Option<Message>,
}

/// A recording that is read line by line.
pub struct RecordingFile {
    path: String,
    source: Box<dyn Source>,
    header: Header,
    end: Timestamp,
    /// The bytes of whole lines.
    length: u64,
    /// Whether the last line is incomplete, and left out.
    is_cut: bool,
    place: Place,
    buffer: Vec<u8>,
}

#[derive(Deserialize)]
struct FormatJson {
    recording: u64,
    #[serde(default)]
    program: String,
}

#[derive(Deserialize)]
struct TimeJson {
    time: Timestamp,
    #[expect(dead_code, reason = "skipped without decoding it")]
    #[serde(default)]
    message: Option<IgnoredAny>,
}

impl RecordingFile {
    /// Opens a recording, and finds its end.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not a recording, or has a newer format.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let shown = path.display().to_string();
        let unreadable = |source| RecordingError::Unreadable { path: shown.clone(), source };
        let file = File::open(path).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::other("it is not a regular file")));
        }
        Self::read(Box::new(BufReader::with_capacity(BUFFER, file)), shown)
    }

    /// Reads a recording from `source`. Errors name it by `path`.
    ///
    /// # Errors
    ///
    /// If the source cannot be read, is not a recording, or has a newer format.
    pub fn read(source: Box<dyn Source>, path: String) -> Result<Self, RecordingError> {
        let beginning = Place { offset: 0, line: 0, time: Timestamp::MIN };
        let header = Header {
            recording: RECORDING_VERSION,
            program: String::new(),
            started: Timestamp::UNIX_EPOCH,
            context: String::new(),
            nodes: Vec::new(),
            all_nodes: false,
        };
        let (end, buffer) = (Timestamp::MIN, Vec::new());
        let mut file = Self { path, source, header, end, length: 0, is_cut: false, place: beginning, buffer };
        file.read_header()?;
        file.measure()?;
        Ok(file)
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn end(&self) -> Timestamp {
        self.end
    }

    /// Whether the last line is incomplete, and left out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn go_to(&mut self, place: Place) -> Result<(), RecordingError> {
        self.source.seek(SeekFrom::Start(place.offset)).map_err(|source| self.unreadable(source))?;
        self.place = place;
        Ok(())
    }

    /// The message after the place, which moves behind it; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Due>, RecordingError> {
        if self.place.offset >= self.length || self.read_line()? == 0 {
            return Ok(None);
        }
        let line: RecordedLine =
            serde_json::from_slice(&self.buffer).map_err(|error| RecordingError::InvalidLine {
                path: self.path.clone(),
                line: self.place.line + 1,
                why: why(&error),
            })?;
        self.advance(line.time);
        Ok(Some(Due { time: self.place.time, message: line.message.into_message() }))
    }

    fn advance(&mut self, time: Timestamp) {
        let Place { offset, line, time: before } = self.place;
        let read = self.buffer.len() as u64;
        self.place = Place { offset: offset + read, line: line + 1, time: time.max(before) };
    }

    fn read_header(&mut self) -> Result<(), RecordingError> {
        let no_recording =
            |file: &Self, why: String| RecordingError::NotARecording { path: file.path.clone(), why };
        if self.read_line()? == 0 {
            return Err(no_recording(self, String::from("it is empty")));
        }
        let format: FormatJson =
            serde_json::from_slice(&self.buffer).map_err(|error| no_recording(self, first_line(&error)))?;
        if format.recording > RECORDING_VERSION {
            let FormatJson { recording: format, program } = format;
            return Err(RecordingError::Newer {
                path: self.path.clone(),
                format,
                program,
                known: RECORDING_VERSION,
            });
        }
        self.header =
            serde_json::from_slice(&self.buffer).map_err(|error| no_recording(self, first_line(&error)))?;
        self.advance(self.header.started);
        Ok(())
    }

    /// Finds the end of the recording, and returns to its beginning.
    fn measure(&mut self) -> Result<(), RecordingError> {
        let first = self.place;
        while self.read_line()? > 0 {
            let is_whole =
                self.buffer.ends_with(b"\n") || serde_json::from_slice::<RecordedLine>(&self.buffer).is_ok();
            if !is_whole {
                self.is_cut = true;
                break;
            }
            // A line without a time is reported when it is due.
            self.advance(time(&self.buffer).unwrap_or(self.place.time));
        }
        (self.length, self.end) = (self.place.offset, self.place.time);
        self.go_to(first)
    }

    /// Reads a line into the buffer, with its line break if it has one. Returns how many bytes that are.
    fn read_line(&mut self) -> Result<usize, RecordingError> {
        self.buffer.clear();
        let mut limited = (&mut *self.source).take(MAX_LINE + 1);
        let read = limited.read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| self.unreadable(source))?;
        if read as u64 > MAX_LINE {
            let why = format!("it has more than {} MiB", MAX_LINE / 1024 / 1024);
            let line = self.place.line + 1;
            return Err(RecordingError::InvalidLine { path: self.path.clone(), line, why });
        }
        Ok(read)
    }

    fn unreadable(&self, source: io::Error) -> RecordingError {
        RecordingError::Unreadable { path: self.path.clone(), source }
    }
}

/// The time of a line. Where it comes first, as a recorder writes it, the rest of the line is not looked at.
fn time(line: &[u8]) -> Option<Timestamp> {
    let first = line.strip_prefix(TIME_FIRST).and_then(|rest| {
        let end = rest.iter().take(64).position(|byte| *byte == b'"')?;
        std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
    });
    first.or_else(|| serde_json::from_slice::<TimeJson>(line).ok().map(|line| line.time))
}

fn first_line(error: &serde_json::Error) -> String {
    format!("its first line is not valid: {}", why(error))
}

/// What is wrong with a line, and at which of its columns.
fn why(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(text) => format!("{text} at column {}", error.column()),
        None => text,
    }
}
