//! A `.tar.gz` in memory, and the file that it is written to: the file is complete, or does not exist.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};
use tempfile::NamedTempFile;

pub(crate) struct Archive {
    tar: Builder<GzEncoder<Vec<u8>>>,
    folder: String,
    time: u64,
}

impl Archive {
    /// An empty archive. Its files are in a folder and have the modification time `time`, in seconds since 1970.
    pub(crate) fn new(folder: String, time: u64) -> Self {
        Self { tar: Builder::new(GzEncoder::new(Vec::new(), Compression::default())), folder, time }
    }

    /// Adds a file. Characters in its name other than letters, digits, `.`, `-` and `/` become `_`, because parts of it come
    /// from the API.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let safe = |c: char| if c.is_ascii_alphanumeric() || ".-/".contains(c) { c } else { '_' };
        let name: String = name.replace("..", "__").chars().map(safe).collect();
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        self.tar.append_data(&mut header, format!("{}/{name}", self.folder), content)
    }

    pub(crate) fn write(self, file: &OutputFile) -> io::Result<()> {
        file.write(&self.tar.into_inner()?.finish()?)
    }
}

/// A file to be written as a whole. No partial file remains if the program ends early. Only its owner can read it.
pub(crate) struct OutputFile(PathBuf);

impl OutputFile {
    /// Checks that the file does not exist and can be written.
    pub(crate) fn reserve(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        drop(Self::temporary(path)?);
        Ok(Self(path.to_owned()))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut temporary = Self::temporary(&self.0)?;
        temporary.write_all(bytes)?;
        temporary.persist_noclobber(&self.0)?;
        Ok(())
    }

    fn temporary(path: &Path) -> io::Result<NamedTempFile> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn archives_contain_their_files_and_overwrite_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let filled = || {
            let mut archive = Archive::new("nm".into(), 1_000_000);
            archive.add("../logs/p:d\u{1b}.log", b"line\n").unwrap();
            archive
        };
        filled().write(&OutputFile::reserve(&path).unwrap()).unwrap();
        let mut tar = tar::Archive::new(GzDecoder::new(File::open(&path).unwrap()));
        let mut entries = tar.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("nm/__/logs/p_d_.log"));
        assert_eq!((entry.header().mode().unwrap(), entry.header().mtime().unwrap()), (0o600, 1_000_000));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "line\n");
        assert!(entries.next().is_none());
        assert_eq!(OutputFile::reserve(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        let late = folder.path().join("late");
        let kept = OutputFile::reserve(&late).unwrap();
        assert!(!late.exists() && std::fs::read_dir(folder.path()).unwrap().count() == 1, "no file remains");
        std::fs::write(&late, "another's").unwrap();
        assert_eq!(filled().write(&kept).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&late).unwrap(), "another's");
        drop(OutputFile::reserve(&folder.path().join("never")).unwrap());
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.tar.gz", "late"]);
    }
}
