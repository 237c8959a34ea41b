//! The link through which kubectl completes the plugin's commands.
//!
//! To complete `kubectl nm …`, kubectl runs `kubectl_complete-nm` from the `PATH`. It is a link to the plugin, in the same
//! folder: in krew's folder it stays valid when krew replaces `kubectl-nm` by a newer version.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The program that kubectl runs for completions of the plugin `kubectl-nm`.
pub(crate) const NAME: &str = "kubectl_complete-nm";

const PLUGIN: &str = "kubectl-nm";

#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("no {PLUGIN} on the PATH is this program ({})", .0.display())]
    NotOnPath(PathBuf),

    #[error("{} exists and is not a link to {PLUGIN}", .0.display())]
    Taken(PathBuf),

    #[error("cannot create the link {}: {source}", path.display())]
    Refused { path: PathBuf, source: io::Error },
}

impl LinkError {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NotOnPath(_) => format!(
                "install it as {PLUGIN} in a folder of the PATH and try again; `kubectl plugin list` shows what kubectl finds"
            ),
            Self::Taken(path) => format!("check what {} is, remove it and try again", path.display()),
            Self::Refused { path, .. } => manual_steps(path, cfg!(windows)),
        }
    }
}

fn manual_steps(link: &Path, on_windows: bool) -> String {
    let path = link.display();
    if on_windows {
        let plugin = link.with_file_name(format!("{PLUGIN}.exe"));
        format!(
            "as an administrator, run in cmd: mklink \"{path}\" {PLUGIN}.exe; or copy the program in PowerShell, after each \
             upgrade: Copy-Item \"{}\" \"{path}\"",
            plugin.display()
        )
    } else {
        format!("with write access to the folder, run: ln -s {PLUGIN} {path}")
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompletionLink {
    pub(crate) path: PathBuf,
    pub(crate) is_new: bool,
}

/// Creates the link next to the plugin on the search path, unless it exists.
pub(crate) fn install(program: &Path, search_path: &OsStr) -> Result<CompletionLink, LinkError> {
    let this = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let is_this = |path: &Path| path.canonicalize().is_ok_and(|path| path == this);
    let folder = std::env::split_paths(search_path)
        .find(|folder| is_this(&folder.join(format!("{PLUGIN}{EXE_SUFFIX}"))))
        .ok_or(LinkError::NotOnPath(this))?;
    let path = folder.join(format!("{NAME}{EXE_SUFFIX}"));
    if path.symlink_metadata().is_ok() {
        let is_ours = is_ours(&path, program);
        return if is_ours {
            Ok(CompletionLink { path, is_new: false })
        } else {
            Err(LinkError::Taken(path))
        };
    }
    match symlink(&path) {
        Ok(()) => Ok(CompletionLink { path, is_new: true }),
        Err(source) => Err(LinkError::Refused { path, source }),
    }
}

/// Whether a link has the right target, even if that does not exist, or a file is a copy of this program.
fn is_ours(path: &Path, program: &Path) -> bool {
    match path.read_link() {
        Ok(target) => [PLUGIN, &format!("{PLUGIN}.exe")].iter().any(|name| target == Path::new(name)),
        Err(_) => fs::read(path).is_ok_and(|ours| fs::read(program).is_ok_and(|this| this == ours)),
    }
}

#[cfg(unix)]
fn symlink(path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(PLUGIN, path)
}

/// On Windows, links need administrator privileges.
#[cfg(not(unix))]
fn symlink(_path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    /// krew's folders: the program in the store, and a link to it on the search path.
    fn krew() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let (store, bin) = (root.path().join("store"), root.path().join("bin"));
        fs::create_dir(&store).unwrap();
        fs::create_dir(&bin).unwrap();
        fs::write(store.join(PLUGIN), "").unwrap();
        std::os::unix::fs::symlink(store.join(PLUGIN), bin.join(PLUGIN)).unwrap();
        (root, store.join(PLUGIN), bin)
    }

    #[test]
    fn the_link_is_created_once_next_to_the_plugin() {
        let (root, program, bin) = krew();
        let search_path = std::env::join_paths([root.path(), &bin]).unwrap();
        for is_new in [true, false] {
            let expected = CompletionLink { path: bin.join(NAME), is_new };
            assert_eq!(install(&program, &search_path).unwrap(), expected);
        }
        assert_eq!(bin.join(NAME).read_link().unwrap(), Path::new(PLUGIN));
        fs::remove_file(bin.join(PLUGIN)).unwrap();
        fs::write(bin.join(PLUGIN), "newer").unwrap();
        let newer = install(&bin.join(PLUGIN), &search_path).unwrap();
        assert!(!newer.is_new, "an upgrade does not change it");
        assert_eq!(fs::read_to_string(bin.join(NAME)).unwrap(), "newer");
    }

    #[test]
    fn other_files_are_not_replaced() {
        let (_root, program, bin) = krew();
        fs::write(bin.join(NAME), "theirs").unwrap();
        let taken = install(&program, bin.as_os_str()).unwrap_err();
        assert!(matches!(&taken, LinkError::Taken(path) if *path == bin.join(NAME)), "{taken}");
        assert_eq!(fs::read_to_string(bin.join(NAME)).unwrap(), "theirs");
        fs::remove_file(bin.join(NAME)).unwrap();
        std::os::unix::fs::symlink("elsewhere", bin.join(NAME)).unwrap();
        assert!(
            matches!(install(&program, bin.as_os_str()), Err(LinkError::Taken(_))),
            "a dangling link is kept too"
        );
    }

    #[test]
    fn a_program_that_kubectl_does_not_find_gets_no_link() {
        let (root, program, bin) = krew();
        let other = root.path().join("other");
        fs::write(&other, "").unwrap();
        assert!(matches!(install(&other, bin.as_os_str()), Err(LinkError::NotOnPath(_))));
        assert!(matches!(install(&program, OsStr::new("")), Err(LinkError::NotOnPath(_))));
        assert!(!bin.join(NAME).exists());
    }

    #[test]
    fn links_and_copies_made_manually_are_recognised() {
        let (_root, program, bin) = krew();
        fs::write(&program, "this program").unwrap();
        let link = bin.join(NAME);
        std::os::unix::fs::symlink("kubectl-nm.exe", &link).unwrap();
        assert!(!install(&program, bin.as_os_str()).unwrap().is_new);
        fs::remove_file(&link).unwrap();
        fs::copy(&program, &link).unwrap();
        assert!(!install(&program, bin.as_os_str()).unwrap().is_new);
        fs::write(&program, "the next one").unwrap();
        assert!(matches!(install(&program, bin.as_os_str()), Err(LinkError::Taken(_))), "an old copy");
    }

    #[test]
    fn the_manual_steps_depend_on_the_system() {
        let link = Path::new("/bin/kubectl_complete-nm");
        assert!(manual_steps(link, false).ends_with("ln -s kubectl-nm /bin/kubectl_complete-nm"));
        let on_windows = manual_steps(&link.with_extension("exe"), true);
        for command in [
            "mklink \"/bin/kubectl_complete-nm.exe\" kubectl-nm.exe",
            "Copy-Item \"/bin/kubectl-nm.exe\" \"/bin/kubectl_complete-nm.exe\"",
        ] {
            assert!(on_windows.contains(command), "{on_windows}");
        }
    }
}
