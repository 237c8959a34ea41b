//! The kubeconfig on disk: for its owner alone, since it carries a token.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// How a sandbox knows a kubeconfig that a sandbox wrote.
const MARK: &str = "current-context: sandbox\n";

/// A kubeconfig that was written. One in a directory of our own goes with it when this is dropped.
#[derive(Debug)]
pub(super) struct KubeconfigFile {
    path: PathBuf,
    directory: Option<PathBuf>,
}

impl KubeconfigFile {
    /// Writes a kubeconfig to `path`, or to a new directory for temporary files.
    ///
    /// # Errors
    /// When it cannot be written, or when `path` holds something that no sandbox wrote.
    pub(super) fn write(path: Option<PathBuf>, content: &str) -> io::Result<Self> {
        let file = match path {
            Some(path) => Self { path, directory: None },
            None => Self::temporary()?,
        };
        if let Err(error) = replace(&file.path, content) {
            let message = format!("cannot write {}: {error}", file.path.display());
            return Err(io::Error::new(error.kind(), message));
        }
        Ok(file)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn temporary() -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("nm-sandbox-{}", Uuid::new_v4()));
        DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self { path: directory.join("kubeconfig"), directory: Some(directory) })
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            // What stays behind is a token of a cluster that is gone.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// Puts the content in place of an older sandbox's, never of anything else's.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(existing) if existing.contains(MARK) => fs::remove_file(path)?,
        Ok(_) => {
            let message = "it exists, and no sandbox wrote it";
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
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_temporary_kubeconfig_is_private_and_goes_with_its_directory() {
        let file = KubeconfigFile::write(None, MARK).unwrap();
        let path = file.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_named_kubeconfig_stays_and_replaces_only_a_sandboxs() {
        let place = KubeconfigFile::temporary().unwrap();
        let path = place.path().to_owned();
        drop(KubeconfigFile::write(Some(path.clone()), MARK).unwrap());
        let again = format!("{MARK}again");
        drop(KubeconfigFile::write(Some(path.clone()), &again).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), again);
        fs::write(&path, "current-context: production\n").unwrap();
        let error = KubeconfigFile::write(Some(path.clone()), MARK).unwrap_err();
        assert!(error.to_string().ends_with("it exists, and no sandbox wrote it"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "current-context: production\n");
    }
}
