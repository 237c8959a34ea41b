//! Tests that cannot run here report themselves as skipped.

use std::io::Write;
use std::process::Command;

/// Reports that the test is skipped. The test runner does not capture this: a skipped test must not look like one that
/// passed.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or_default());
}

/// Whether there is a kubectl. Where there is none, the test is reported as skipped.
pub fn has_kubectl() -> bool {
    has_program("kubectl", &["version", "--client"])
}

/// Whether a program runs with these arguments. Where it does not, the test is reported as skipped.
pub fn has_program(name: &str, arguments: &[&str]) -> bool {
    let found = Command::new(name).args(arguments).output().is_ok_and(|output| output.status.success());
    if !found {
        skipped(&format!("no {name} on PATH"));
    }
    found
}
