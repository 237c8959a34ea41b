//! A `.tar.gz` in memory. It is written to its file in one go, so that what is there is whole.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// An archive that grows.
pub(crate) struct Archive {
    tar: Builder<GzEncoder<Vec<u8>>>,
    folder: String,
    time: u64,
}

impl Archive {
    /// An empty archive, whose files will be in a folder and as old as `time`, in seconds since 1970.
    pub(crate) fn new(folder: String, time: u64) -> Self {
        Self { tar: Builder::new(GzEncoder::new(Vec::new(), Compression::default())), folder, time }
    }

    /// Adds a file. What in its name is no letter, digit, `.`, `-` or `/` becomes `_`, because parts of it are from the API.
    ///
    /// # Errors
    ///
    /// When the name is too long.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let safe = |c: char| if c.is_ascii_alphanumeric() || ".-/".contains(c) { c } else { '_' };
        let name: String = name.replace("..", "__").chars().map(safe).collect();
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        self.tar.append_data(&mut header, format!("{}/{name}", self.folder), content)
    }

    /// Writes it to a file that does not exist yet, and that only its owner may read.
    ///
    /// # Errors
    ///
    /// When the file exists, or cannot be written.
    pub(crate) fn write(self, path: &Path) -> io::Result<()> {
        let bytes = self.tar.into_inner()?.finish()?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)?.write_all(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn what_is_put_in_comes_out_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let filled = || {
            let mut archive = Archive::new("nm".into(), 1_000_000);
            archive.add("../logs/p:d\u{1b}.log", b"line\n").unwrap();
            archive
        };
        filled().write(&path).unwrap();
        let mut tar = tar::Archive::new(GzDecoder::new(std::fs::File::open(&path).unwrap()));
        let mut entries = tar.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("nm/__/logs/p_d_.log"));
        assert_eq!((entry.header().mode().unwrap(), entry.header().mtime().unwrap()), (0o600, 1_000_000));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "line\n");
        assert!(entries.next().is_none());
        assert_eq!(filled().write(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
