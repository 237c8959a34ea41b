//! What this program was called by: `kubectl nm`, or `oc nm`, as usage lines are to say.

use std::ffi::OsStr;
use std::path::Path;

/// The command that people type, from the program's own name and from the variable `_`, in which shells leave what they
/// began: kubectl and oc become the plugin, so that it is still theirs. Where nothing tells, it is kubectl.
pub(crate) fn called(program: Option<&OsStr>, begun: Option<&OsStr>) -> &'static str {
    let is = |path: Option<&OsStr>, name: &str| {
        path.and_then(|path| Path::new(path).file_stem()).is_some_and(|stem| stem == name)
    };
    if is(program, "oc-nm") || is(begun, "oc") { "oc nm" } else { "kubectl nm" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_called_by_the_program_that_it_is_a_plugin_of() {
        for (program, begun, command) in [
            ("kubectl-nm", None, "kubectl nm"),
            ("/usr/local/bin/kubectl-nm", Some("/usr/bin/kubectl"), "kubectl nm"),
            ("/usr/local/bin/kubectl-nm", Some("/usr/bin/oc"), "oc nm"),
            ("/usr/local/bin/oc-nm", Some("/usr/bin/kubectl"), "oc nm"),
            ("kubectl-nm.exe", Some("oc.exe"), "oc nm"),
            ("", Some(""), "kubectl nm"),
        ] {
            assert_eq!(called(Some(program.as_ref()), begun.map(OsStr::new)), command, "{program} {begun:?}");
        }
        assert_eq!(called(None, None), "kubectl nm");
    }
}
