//! The kubeconfig on disk, readable only by its owner, since it contains a token.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The context of a sandbox's kubeconfig.
pub(crate) const CONTEXT: &str = "sandbox";

/// A line by which a sandbox recognises a kubeconfig that a sandbox wrote.
const MARK: &str = "current-context: sandbox\n";

/// A kubeconfig that was written. One in a temporary directory is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct KubeconfigFile {
    path: PathBuf,
    _directory: Option<TempDir>,
}

impl KubeconfigFile {
    /// Writes a kubeconfig to `path`, or to a new temporary directory.
    ///
    /// # Errors
    /// When it cannot be written, or when `path` holds a file that no sandbox wrote.
    pub(crate) fn write(path: Option<PathBuf>, content: &str) -> io::Result<Self> {
        let (path, directory) = if let Some(path) = path {
            (path, None)
        } else {
            let owner_only = Permissions::from_mode(0o700);
            let directory =
                tempfile::Builder::new().prefix("nm-sandbox-").permissions(owner_only).tempdir()?;
            (directory.path().join("kubeconfig"), Some(directory))
        };
        if let Err(error) = replace(&path, content) {
            let message = format!("cannot write {}: {error}", path.display());
            return Err(io::Error::new(error.kind(), message));
        }
        Ok(Self { path, _directory: directory })
    }

    /// Where the kubeconfig is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes the file. It replaces the file of an older sandbox and nothing else.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(existing) if existing.contains(MARK) => fs::remove_file(path)?,
        Ok(_) => {
            let message = "the file exists and was not written by a sandbox";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_kubeconfig_is_private_and_is_removed_with_its_directory() {
        let file = KubeconfigFile::write(None, MARK).unwrap();
        let path = file.path().to_owned();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop(file);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_named_kubeconfig_stays_and_replaces_only_one_of_a_sandbox() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        drop(KubeconfigFile::write(Some(path.clone()), MARK).unwrap());
        let again = format!("{MARK}again");
        drop(KubeconfigFile::write(Some(path.clone()), &again).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), again);
        fs::write(&path, "current-context: production\n").unwrap();
        let error = KubeconfigFile::write(Some(path.clone()), MARK).unwrap_err();
        assert!(error.to_string().ends_with("was not written by a sandbox"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "current-context: production\n");
    }
}
