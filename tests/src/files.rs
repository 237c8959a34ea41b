//! Files that tests read and write.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::NamedTempFile;

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Replaces a generated file at once: other tests may be reading it.
pub fn replace(path: &Path, content: &str) {
    let folder = path.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let file = NamedTempFile::new_in(folder).unwrap();
    std::fs::write(file.path(), content).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), permissions).unwrap();
    file.persist(path).unwrap();
}

/// A temporary file with this content.
pub fn temp_file(content: impl AsRef<[u8]>) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

/// A kubeconfig for a server, with a context `c` and a user without credentials.
pub fn kubeconfig_for(server: &str) -> NamedTempFile {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    temp_file(config.to_string())
}

/// Unpacks a tar archive into a new folder.
pub fn untar(archive: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to).status().unwrap();
    assert!(status.success(), "{}", archive.display());
}

/// The SHA-256 digest of a file, in hexadecimal.
pub fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}
