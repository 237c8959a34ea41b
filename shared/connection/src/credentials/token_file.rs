//! Tokens in files, which somebody renews: the kubelet for a pod, other programs for `tokenFile` in a kubeconfig.

use std::path::{Path, PathBuf};

use http::HeaderValue;

use super::error::{CredentialError, TokenOrigin};
use super::header;

/// The file of a token, with the last token that was read from it.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    last: Option<HeaderValue>,
}

impl TokenFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: None }
    }

    pub(super) fn is_of(&self, path: &Path) -> bool {
        self.path == path
    }

    /// The `Authorization` header. As in client-go, the last token is used while the file cannot be read, and white space
    /// around a token is ignored: `kubectl create token` prints a line break.
    pub(super) fn read(&mut self) -> Result<HeaderValue, CredentialError> {
        let read = std::fs::read_to_string(&self.path)
            .map_err(|source| CredentialError::TokenFile { path: self.path.clone(), source })
            .and_then(|text| match text.trim() {
                "" => Err(CredentialError::EmptyTokenFile(self.path.clone())),
                token => header::bearer(token, TokenOrigin::File),
            });
        match (read, &self.last) {
            (Ok(token), _) => Ok(self.last.insert(token).clone()),
            (Err(_), Some(last)) => Ok(last.clone()),
            (Err(error), None) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_around_a_token_is_ignored() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["t1", "t1\n", "t1\r\n", "  t1 \n\n"] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(TokenFile::new(file.path()).read().unwrap(), "Bearer t1", "{text:?}");
        }
    }

    #[test]
    fn a_file_that_disappears_leaves_its_last_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        std::fs::write(&path, "t1\n").unwrap();
        let mut token = TokenFile::new(&path);
        assert_eq!(token.read().unwrap(), "Bearer t1");
        std::fs::write(&path, "t2\n").unwrap();
        assert_eq!(token.read().unwrap(), "Bearer t2");
        std::fs::write(&path, "\n").unwrap();
        assert_eq!(token.read().unwrap(), "Bearer t2", "it is being rewritten");
        drop(file);
        assert_eq!(token.read().unwrap(), "Bearer t2");
    }

    #[test]
    fn a_file_without_a_token_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let error = TokenFile::new(&path).read().unwrap_err();
        assert!(matches!(&error, CredentialError::TokenFile { path: named, .. } if *named == path));
        std::fs::write(&path, " \n").unwrap();
        assert!(matches!(TokenFile::new(&path).read(), Err(CredentialError::EmptyTokenFile(_))));
        std::fs::write(&path, "one\ntwo\n").unwrap();
        assert!(matches!(TokenFile::new(&path).read(), Err(CredentialError::Header(TokenOrigin::File))));
    }
}
