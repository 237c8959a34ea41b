//! A `.tar.gz` in memory, and the place that it is for: what is there in the end is whole, or not there at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

    /// Writes it to its place.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or another file has appeared there.
    pub(crate) fn write(self, place: Place) -> io::Result<()> {
        place.fill(&self.tar.into_inner()?.finish()?)
    }
}

/// A file that is to be. Nothing lies about until all of it is known, whatever ends the program before.
pub(crate) struct Place {
    path: PathBuf,
}

impl Place {
    /// Makes sure that a file can be written that does not exist yet.
    ///
    /// # Errors
    ///
    /// When the file exists, or cannot be written.
    pub(crate) fn keep(path: &Path) -> io::Result<Self> {
        is_free(path)?;
        drop(Draft::beside(path)?);
        Ok(Self { path: path.to_owned() })
    }

    fn fill(self, bytes: &[u8]) -> io::Result<()> {
        let mut draft = Draft::beside(&self.path)?;
        draft.file.write_all(bytes)?;
        is_free(&self.path)?;
        std::fs::rename(&draft.path, &self.path)
    }
}

/// A file that becomes another when it is whole, and is removed otherwise. Only its owner may read it.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy();
        let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Self { file: options.open(&draft)?, path: draft })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Where it has become what it was for, there is nothing of that name.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_free(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Ok(()),
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
        filled().write(Place::keep(&path).unwrap()).unwrap();
        let mut tar = tar::Archive::new(GzDecoder::new(File::open(&path).unwrap()));
        let mut entries = tar.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("nm/__/logs/p_d_.log"));
        assert_eq!((entry.header().mode().unwrap(), entry.header().mtime().unwrap()), (0o600, 1_000_000));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "line\n");
        assert!(entries.next().is_none());
        assert_eq!(Place::keep(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        let late = folder.path().join("late");
        let kept = Place::keep(&late).unwrap();
        assert!(!late.exists() && std::fs::read_dir(folder.path()).unwrap().count() == 1, "nothing yet");
        std::fs::write(&late, "another's").unwrap();
        assert_eq!(filled().write(kept).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&late).unwrap(), "another's");
        drop(Place::keep(&folder.path().join("never")).unwrap());
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.tar.gz", "late"]);
    }
}
