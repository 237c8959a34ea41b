//! The link by which kubectl finds out how to complete our commands.
//!
//! While `kubectl nm …` is typed, kubectl looks on the `PATH` for `kubectl_complete-nm` and asks that. It is a link to
//! the plugin beside the plugin: in krew's folder it stays right when krew puts a newer version behind `kubectl-nm`.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What kubectl asks for completions, for the plugin `kubectl-nm`.
pub(crate) const NAME: &str = "kubectl_complete-nm";

const PLUGIN: &str = "kubectl-nm";

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// kubectl would not find the plugin either.
    #[error("error: no {PLUGIN} on the PATH is this program ({})", .0.display())]
    NotOnPath(PathBuf),

    /// Something else has the name.
    #[error("error: {} exists, and is no link to {PLUGIN}", .0.display())]
    Taken(PathBuf),

    /// The system refuses.
    #[error("error: cannot make the link {}: {source}", path.display())]
    Refused {
        /// The link.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LinkError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NotOnPath(_) => format!(
                "put it into a folder of the PATH as {PLUGIN} and try again; `kubectl plugin list` shows what kubectl finds"
            ),
            Self::Taken(path) => format!("see what it is; once {} is gone, try again", path.display()),
            Self::Refused { path, .. } => by_hand(path, cfg!(windows)),
        }
    }
}

/// How to make the link without us, on Windows or elsewhere.
fn by_hand(link: &Path, on_windows: bool) -> String {
    let path = link.display();
    if on_windows {
        let plugin = link.with_file_name(format!("{PLUGIN}.exe"));
        format!(
            "an administrator can make it in cmd: mklink \"{path}\" {PLUGIN}.exe; in PowerShell a copy will do until the \
             next upgrade: Copy-Item \"{}\" \"{path}\"",
            plugin.display()
        )
    } else {
        format!("somebody with the right to can make it: ln -s {PLUGIN} {path}")
    }
}

/// A link that is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where.
    pub(crate) path: PathBuf,
    /// Whether it was not there before.
    pub(crate) is_new: bool,
}

/// Makes the link beside the plugin on the search path that `program` is, unless it is there.
///
/// # Errors
///
/// When no plugin there is this program, something else has the name, or the system refuses.
pub(crate) fn install(program: &Path, search_path: &OsStr) -> Result<Link, LinkError> {
    let this = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let is_this = |path: &Path| path.canonicalize().is_ok_and(|path| path == this);
    let folder = std::env::split_paths(search_path)
        .find(|folder| is_this(&folder.join(format!("{PLUGIN}{EXE_SUFFIX}"))))
        .ok_or(LinkError::NotOnPath(this))?;
    let path = folder.join(format!("{NAME}{EXE_SUFFIX}"));
    if path.symlink_metadata().is_ok() {
        let is_ours = is_ours(&path, program);
        return if is_ours { Ok(Link { path, is_new: false }) } else { Err(LinkError::Taken(path)) };
    }
    match link(&path) {
        Ok(()) => Ok(Link { path, is_new: true }),
        Err(source) => Err(LinkError::Refused { path, source }),
    }
}

/// Whether a link says what we write, whatever may be behind it, or a file is a copy of this program.
fn is_ours(path: &Path, program: &Path) -> bool {
    match path.read_link() {
        Ok(target) => [PLUGIN, &format!("{PLUGIN}.exe")].iter().any(|name| target == Path::new(name)),
        Err(_) => fs::read(path).is_ok_and(|ours| fs::read(program).is_ok_and(|this| this == ours)),
    }
}

#[cfg(unix)]
fn link(path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(PLUGIN, path)
}

/// Elsewhere links need rights that few have.
#[cfg(not(unix))]
fn link(_path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as krew has it: the program in its store, and a link to it on the search path.
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
    fn the_link_is_beside_the_plugin_and_made_once() {
        let (root, program, bin) = krew();
        let search_path = std::env::join_paths([root.path(), &bin]).unwrap();
        for is_new in [true, false] {
            let expected = Link { path: bin.join(NAME), is_new };
            assert_eq!(install(&program, &search_path).unwrap(), expected);
        }
        assert_eq!(bin.join(NAME).read_link().unwrap(), Path::new(PLUGIN));
        fs::remove_file(bin.join(PLUGIN)).unwrap();
        fs::write(bin.join(PLUGIN), "newer").unwrap();
        let newer = install(&bin.join(PLUGIN), &search_path).unwrap();
        assert!(!newer.is_new, "an upgrade leaves it as it is");
        assert_eq!(fs::read_to_string(bin.join(NAME)).unwrap(), "newer");
    }

    #[test]
    fn what_somebody_else_put_there_stays() {
        let (_root, program, bin) = krew();
        fs::write(bin.join(NAME), "theirs").unwrap();
        let taken = install(&program, bin.as_os_str()).unwrap_err();
        assert!(matches!(&taken, LinkError::Taken(path) if *path == bin.join(NAME)), "{taken}");
        assert_eq!(fs::read_to_string(bin.join(NAME)).unwrap(), "theirs");
        fs::remove_file(bin.join(NAME)).unwrap();
        std::os::unix::fs::symlink("elsewhere", bin.join(NAME)).unwrap();
        assert!(matches!(install(&program, bin.as_os_str()), Err(LinkError::Taken(_))), "also a dead link");
    }

    #[test]
    fn a_program_that_kubectl_would_not_find_gets_no_link() {
        let (root, program, bin) = krew();
        let other = root.path().join("other");
        fs::write(&other, "").unwrap();
        assert!(matches!(install(&other, bin.as_os_str()), Err(LinkError::NotOnPath(_))));
        assert!(matches!(install(&program, OsStr::new("")), Err(LinkError::NotOnPath(_))));
        assert!(!bin.join(NAME).exists());
    }

    #[test]
    fn what_was_made_by_hand_is_ours_too() {
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
    fn each_system_is_told_its_own_way() {
        let link = Path::new("/bin/kubectl_complete-nm");
        assert_eq!(
            by_hand(link, false),
            "somebody with the right to can make it: ln -s kubectl-nm /bin/kubectl_complete-nm"
        );
        assert_eq!(
            by_hand(&link.with_extension("exe"), true),
            "an administrator can make it in cmd: mklink \"/bin/kubectl_complete-nm.exe\" kubectl-nm.exe; in PowerShell a \
             copy will do until the next upgrade: Copy-Item \"/bin/kubectl-nm.exe\" \"/bin/kubectl_complete-nm.exe\""
        );
    }
}
