//! The plugin as a krew package: packed by `krew/package.sh`, installed as krew does, and run by kubectl.
//!
//! The package has the program that the other tests run, so that nothing is built for it.

use crate::install::krew_manifest::{is_for, violations};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nm_tests::files::{repository, sha256, untar};
use nm_tests::installed_plugin::InstalledPlugin;
use nm_tests::programs::program;
use nm_tests::skip::{has_kubectl, skipped};
use serde_json::Value;

const PLATFORMS: [(&str, &str); 6] = [
    ("linux", "amd64"),
    ("linux", "arm64"),
    ("darwin", "amd64"),
    ("darwin", "arm64"),
    ("windows", "amd64"),
    ("windows", "arm64"),
];

/// File names that krew's index accepts as a license.
const LICENSES: [&str; 8] = [
    "license",
    "license.txt",
    "license.md",
    "licenses",
    "licenses.txt",
    "licenses.md",
    "copying",
    "copying.txt",
];

/// Runs the script with an output folder.
fn package(out: &Path, args: &[&str]) -> Output {
    let script = repository().join("krew/package.sh");
    Command::new(script).arg("--out").arg(out).args(args).env("SOURCE_DATE_EPOCH", "0").output().unwrap()
}

/// Packs a program for these platforms.
fn pack(out: &Path, program: &Path, platforms: &[String]) {
    let mut args = vec!["--binary", program.to_str().unwrap()];
    args.extend(platforms.iter().map(String::as_str));
    let output = package(out, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn every_platform() -> Vec<String> {
    PLATFORMS.iter().map(|(os, arch)| format!("{os}-{arch}")).collect()
}

fn manifest(out: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(out.join("nm.yaml")).unwrap()).unwrap()
}

/// The archive for a platform of the manifest.
fn archive(out: &Path, platform: &Value) -> PathBuf {
    out.join(platform["uri"].as_str().unwrap().rsplit('/').next().unwrap())
}

/// The platform of this machine, in krew's terms.
fn this_machine() -> (&'static str, &'static str) {
    let os = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    (os, if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" })
}

#[test]
fn the_manifest_meets_krews_rules_and_has_each_platform_once() {
    let files = tempfile::tempdir().unwrap();
    let (out, small) = (files.path().join("out"), files.path().join("program"));
    fs::write(&small, "small").unwrap();
    pack(&out, &small, &every_platform());
    let manifest = manifest(&out);
    assert_eq!(violations("nm", &manifest), Vec::<String>::new());
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], format!("v{}", env!("CARGO_PKG_VERSION")));
    assert!(spec["caveats"].as_str().unwrap().contains("kubectl nm install"), "{spec}");
    let platforms = spec["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), PLATFORMS.len());
    for (os, arch) in PLATFORMS {
        let platform = platforms.iter().find(|platform| is_for(platform, os, arch)).expect(arch);
        let archive = archive(&out, platform);
        assert_eq!(platform["sha256"], sha256(&archive), "{os} {arch}");
        assert!(
            archive.to_str().unwrap().ends_with(&format!("-{os}-{arch}.tar.gz")),
            "{}",
            archive.display()
        );
        let suffix = if os == "windows" { ".exe" } else { "" };
        assert_eq!(platform["bin"], format!("kubectl-nm{suffix}"));
        let contents = files.path().join(format!("{os}-{arch}"));
        untar(&archive, &contents);
        assert!(contents.join(platform["bin"].as_str().unwrap()).exists(), "{os} {arch}");
    }
    let complete = package(&out, &["--manifest"]);
    assert!(complete.status.success(), "{}", String::from_utf8_lossy(&complete.stderr));
}

#[test]
fn the_same_program_makes_the_same_archive() {
    let files = tempfile::tempdir().unwrap();
    let small = files.path().join("program");
    let linux = ["linux-amd64".to_owned()];
    let digests = ["a", "b"].map(|run| {
        fs::write(&small, "small").unwrap();
        let out = files.path().join(run);
        pack(&out, &small, &linux);
        manifest(&out)["spec"]["platforms"][0]["sha256"].clone()
    });
    assert_eq!(digests[0], digests[1]);
    // Two runs within the same second would agree by chance, so the archive must not contain the time or the user at all.
    let archive =
        archive(&files.path().join("a"), &manifest(&files.path().join("a"))["spec"]["platforms"][0]);
    assert_eq!(fs::read(&archive).unwrap()[4..8], [0; 4], "the modification time in the gzip header");
    for entry in listing(&archive) {
        assert!(entry.contains(" 0/0 ") && entry.contains(" 1970-01-01 "), "{entry}");
    }
    fs::write(&small, "other").unwrap();
    let out = files.path().join("c");
    pack(&out, &small, &linux);
    assert_ne!(manifest(&out)["spec"]["platforms"][0]["sha256"], digests[0]);
}

#[test]
fn a_platform_without_an_archive_is_left_out_of_a_manifest_and_fails_a_release() {
    let files = tempfile::tempdir().unwrap();
    let (out, small) = (files.path().join("out"), files.path().join("program"));
    fs::write(&small, "small").unwrap();
    pack(&out, &small, &every_platform()[..5]);
    let partial = manifest(&out);
    assert_eq!(violations("nm", &partial), Vec::<String>::new());
    assert_eq!(partial["spec"]["platforms"].as_array().unwrap().len(), 5);
    let refused = package(&out, &["--manifest"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("windows-arm64.tar.gz") && !said.contains("linux"), "{said}");
    assert_eq!(package(&out, &["linux-riscv64"]).status.code(), Some(2));
}

#[test]
fn an_index_of_ones_own_has_the_manifest_with_the_address_of_the_archives() {
    let files = tempfile::tempdir().unwrap();
    let (out, index, small) =
        (files.path().join("out"), files.path().join("index"), files.path().join("program"));
    fs::write(&small, "small").unwrap();
    let folder = index.to_str().unwrap();
    let to =
        ["--url", "https://files.example.com/nm/", "--index", folder, "--binary", small.to_str().unwrap()];
    let output = package(&out, &[&to[..], &["linux-amd64"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(index.join("plugins/nm.yaml")).unwrap();
    assert_eq!(text, fs::read_to_string(out.join("nm.yaml")).unwrap());
    let manifest: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(violations("nm", &manifest), Vec::<String>::new());
    let platform = &manifest["spec"]["platforms"][0];
    let name = format!("kubectl-nm-v{}-linux-amd64.tar.gz", env!("CARGO_PKG_VERSION"));
    assert_eq!(platform["uri"], format!("https://files.example.com/nm/{name}"));
    assert_eq!(platform["sha256"], sha256(&out.join(name)));
}

#[test]
fn the_description_lists_no_commands_and_fits_eighty_columns() {
    let template = fs::read_to_string(repository().join("krew/nm.yaml")).unwrap();
    let (_, rest) = template.split_once("  description: |\n").unwrap();
    let (description, caveats) = rest.split_once("  caveats: |\n").unwrap();
    assert!(!description.contains("kubectl nm"), "krew's index refuses lists of commands: {description}");
    let (caveats, _) = caveats.split_once("  platforms:").unwrap();
    for line in description.lines().chain(caveats.lines()) {
        assert!(line.trim_start().len() <= 80, "{line}");
    }
}

/// A stand-in for cargo: it records its flags, and creates a program where cargo would.
const CARGO: &str = r#"#!/bin/sh
[ "$1" != pkgid ] || exec "$REAL_CARGO" "$@"
echo "$@" >"$CARGO_TARGET_DIR/called"
for target; do :; done
mkdir -p "$CARGO_TARGET_DIR/$target/release"
echo built >"$CARGO_TARGET_DIR/$target/release/kubectl-nm"
"#;

#[test]
fn the_script_builds_and_packs_the_plugin_for_this_machine() {
    use std::os::unix::fs::PermissionsExt;

    let (os, arch) = this_machine();
    let machine = if arch == "arm64" { "aarch64" } else { "x86_64" };
    let target = match os {
        "linux" => format!("{machine}-unknown-linux-musl"),
        "darwin" => format!("{machine}-apple-darwin"),
        other => return skipped(&format!("the plugin is not built on {other}")),
    };
    let files = tempfile::tempdir().unwrap();
    let cargo = files.path().join("cargo");
    fs::write(&cargo, CARGO).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(repository().join("krew/package.sh"))
        .arg(format!("{os}-{arch}"))
        .env("REAL_CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .env("CARGO", &cargo)
        .env("CARGO_TARGET_DIR", files.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let called = fs::read_to_string(files.path().join("called")).unwrap();
    assert_eq!(called, format!("build --locked --release -p kubectl-nm --target {target}\n"));
    // The default output folder.
    let out = files.path().join("krew");
    let platforms = manifest(&out)["spec"]["platforms"].as_array().unwrap().clone();
    assert_eq!(platforms.len(), 1);
    assert!(is_for(&platforms[0], os, arch), "{platforms:?}");
    untar(&archive(&out, &platforms[0]), &files.path().join("unpacked"));
    let program = files.path().join("unpacked/kubectl-nm");
    assert_eq!(fs::read_to_string(&program).unwrap(), "built\n");
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755);
}

/// The entries of an archive, with their owners and times.
fn listing(archive: &Path) -> Vec<String> {
    let listing = Command::new("tar")
        .args(["--numeric-owner", "-tvzf"])
        .arg(archive)
        .env("TZ", "UTC")
        .output()
        .unwrap();
    let entries: Vec<String> =
        String::from_utf8(listing.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(entries.len(), 2, "{entries:?}");
    entries
}

/// Installs as krew does: moves every file of the archive to a store, and links the program from a `bin` folder.
fn install(platform: &Value, archive: &Path) -> InstalledPlugin {
    let krew = tempfile::tempdir().unwrap();
    assert_eq!(fs::read(archive).unwrap()[..2], [0x1f, 0x8b], "gzip, which krew detects by its magic number");
    for entry in listing(archive) {
        assert!(entry.starts_with('-'), "krew accepts files and folders only: {entry}");
        assert!(!entry.contains("..") && !entry.contains(" /"), "krew refuses {entry}");
    }
    let (store, bin) = (krew.path().join("store"), krew.path().join("bin"));
    untar(archive, &store);
    assert!(platform["files"].is_null(), "without a list every file is installed");
    let is_license = |name: &str| LICENSES.contains(&name.to_lowercase().as_str());
    let names = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().any(|name| is_license(&name)), "krew's index requires a license");
    fs::create_dir(&bin).unwrap();
    let program = store.join(platform["bin"].as_str().unwrap());
    std::os::unix::fs::symlink(program, bin.join("kubectl-nm")).unwrap();
    InstalledPlugin::at(krew, bin)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_installed_by_krew_runs_and_completes() {
    if !has_kubectl() {
        return;
    }
    let (os, arch) = this_machine();
    let out = tempfile::tempdir().unwrap();
    pack(out.path(), &program("kubectl-nm"), &[format!("{os}-{arch}")]);
    let platform = manifest(out.path())["spec"]["platforms"][0].clone();
    assert!(is_for(&platform, os, arch));
    let plugin = install(&platform, &archive(out.path(), &platform));

    let nowhere = Path::new("/nowhere/kubeconfig");
    let version = plugin.run("kubectl", nowhere, &["nm", "version", "--client"]).await.ok();
    assert_eq!(version.stdout, format!("Plugin: {}\n", env!("CARGO_PKG_VERSION")));
    std::os::unix::fs::symlink("kubectl-nm", plugin.folder().join("kubectl_complete-nm")).unwrap();
    assert_eq!(plugin.completions(nowhere, &["sta"]).await, ["start", "status"]);
}
