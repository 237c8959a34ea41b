//! The commands of README.md and `docs/`: each is run against a sandbox, in the order in which a reader meets it.
//!
//! A page is one shell script. Its fenced blocks of `sh`, and the lines of its `console` blocks that begin with `$ `, run
//! one after another in one shell, which ends at the first command that fails. The other lines of a `console` block must
//! be in the output, except `...`. The cluster is a sandbox of six nodes and
//! sixty pods, as `nm-sandbox up` starts it, on which `kubectl nm install` has installed everything.
//!
//! HTML comments change that. At the top of a page:
//! - `<!-- cluster: empty -->`: nothing is installed; the page installs it.
//! - `<!-- cluster: none -->`: the page starts its own cluster.
//!
//! Directly above a block:
//! - `<!-- needs: WHAT -->`: the block is not run, because a sandbox cannot be WHAT.
//! - `<!-- exit: N -->`: the block is one command that exits with N.
//! - `<!-- background: TEXT -->`: the last command of the block runs until the page ends; the page goes on when that
//!   command has printed TEXT.
//! - `<!-- file: PATH -->`: the block, of any language, is written to PATH.
//!
//! `cargo run` and `cargo build` of a program of this workspace mean the one that was built for the tests. `kubectl nm` is
//! the built plugin. Where there is no kubectl, a page ends at the first other command of kubectl, and that is reported.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nm_shared::api::names::WEBHOOK;
use nm_tests::cluster::Cluster;
use nm_tests::files::repository;
use nm_tests::programs::{plugin, program};
use nm_tests::skip::skipped;
use nm_tests::wait::wait_until;
use nm_tests::webhook;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::repository::links::pages_below;

/// The longest that a page takes on a busy machine.
const PAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// The image that the pages install.
const IMAGE: &str = "registry.example.com/you/nm-reconciler:0.1.0";

/// The programs of this workspace that pages run.
const PROGRAMS: [&str; 3] = ["kubectl-nm", "nm-reconciler", "nm-sandbox"];

/// Languages of blocks that have no commands.
const NO_COMMANDS: [&str; 5] = ["yaml", "json", "toml", "text", "powershell"];

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_readme_work() {
    run_all(&[repository().join("README.md")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_tutorials_work() {
    run_all(&pages_below(&repository().join("docs/tutorial"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_how_to_guides_work() {
    run_all(&pages_below(&repository().join("docs/how-to"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_other_pages_work() {
    let is_other = |page: &PathBuf| {
        !["tutorial", "how-to"].iter().any(|folder| page.parent().unwrap().ends_with(folder))
    };
    run_all(&pages_below(&repository().join("docs")).into_iter().filter(is_other).collect::<Vec<_>>()).await;
}

/// Runs pages, some at a time, and reports all that fail.
async fn run_all(pages: &[PathBuf]) {
    assert!(!pages.is_empty());
    let outcomes = futures::stream::iter(pages).map(|page| run(page)).buffer_unordered(2);
    let failures: Vec<String> = outcomes.filter_map(async |outcome| outcome.err()).collect().await;
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// # Errors
/// What was printed until the first command that failed.
async fn run(page: &Path) -> Result<(), String> {
    let name = page.strip_prefix(repository()).unwrap().display().to_string();
    let text = std::fs::read_to_string(page).unwrap();
    let parsed = Page::parse(&text).map_err(|why| format!("{name}: {why}"))?;
    parsed.run(&name).await
}

/// The cluster that a page finds.
#[derive(Debug, PartialEq, Eq)]
enum Before {
    Installed,
    Empty,
    Nothing,
}

/// How a block is run.
#[derive(Debug, PartialEq, Eq)]
enum How {
    Run,
    ExpectExit(u8),
    Background { until: String },
    File { path: String },
    Skip,
}

/// A block that means something to the shell.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    line: usize,
    how: How,
    text: String,
    /// Lines of output that the page shows.
    shown: Vec<String>,
}

#[derive(Debug)]
struct Page {
    before: Before,
    blocks: Vec<Block>,
}

impl Page {
    /// # Errors
    /// The line and what is wrong with it.
    fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self { before: Before::Installed, blocks: Vec::new() };
        let mut how = None;
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let at = |why: &str| format!("line {}: {why}", number + 1);
            if let Some(language) = line.trim_start().strip_prefix("```") {
                let body = lines
                    .by_ref()
                    .map(|(_, line)| line)
                    .take_while(|line| !line.trim_start().starts_with("```"));
                let body: Vec<&str> = body.collect();
                let how = how.take().unwrap_or(How::Run);
                let (text, shown) = match language {
                    _ if matches!(how, How::File { .. }) => (body.join("\n"), Vec::new()),
                    "sh" => (body.join("\n"), Vec::new()),
                    "console" => session(&body),
                    other if NO_COMMANDS.contains(&other) && how == How::Run => continue,
                    other => return Err(at(&format!("nobody runs a block of `{other}`"))),
                };
                if text.trim().is_empty() {
                    return Err(at("the block has no command"));
                }
                page.blocks.push(Block { line: number + 1, how, text, shown });
                continue;
            }
            let Some(comment) = line.trim().strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"))
            else {
                continue;
            };
            match comment.split_once(": ") {
                Some(("cluster", "empty")) => page.before = Before::Empty,
                Some(("cluster", "none")) => page.before = Before::Nothing,
                Some(("needs", _)) => how = Some(How::Skip),
                Some(("exit", code)) => {
                    how = Some(How::ExpectExit(code.parse().map_err(|_| at("no exit code"))?));
                }
                Some(("background", text)) => how = Some(How::Background { until: text.to_owned() }),
                Some(("file", path)) => how = Some(How::File { path: path.to_owned() }),
                _ if comment.contains("generated") => {}
                _ => return Err(at("no such comment")),
            }
        }
        Ok(page)
    }

    /// The blocks that can be run here: all, or those before the first that needs kubectl where there is none.
    fn runnable(&self, name: &str) -> Vec<&Block> {
        let needs_kubectl = |block: &&Block| {
            let words: Vec<&str> = block.text.split_whitespace().collect();
            let is_command = !matches!(block.how, How::Skip | How::File { .. });
            is_command && words.windows(2).any(|pair| pair[0] == "kubectl" && pair[1] != "nm")
        };
        let blocks = self.blocks.iter();
        match self.blocks.iter().find(needs_kubectl) {
            Some(first) if on_path("kubectl").is_none() => {
                skipped(&format!("no kubectl on PATH: {name} from line {} on", first.line));
                blocks.take_while(|block| block.line < first.line).collect()
            }
            _ => blocks.collect(),
        }
    }

    /// # Errors
    /// What was printed until the first command that failed.
    async fn run(&self, name: &str) -> Result<(), String> {
        let blocks = self.runnable(name);
        if !blocks.iter().any(|block| !matches!(block.how, How::Skip | How::File { .. })) {
            return Ok(());
        }
        let place = Place::new(&blocks);
        let script = script(name, &blocks);
        if self.before == Before::Nothing {
            return place.run(name, &script, None).await.and_then(|()| place.check_shown(name, &blocks));
        }
        let cluster = Cluster::bare_sandbox(6, 60, |sandbox| sandbox).await;
        let commands = async {
            if self.before == Before::Installed {
                let _ = plugin(&cluster, &["install", "--image", IMAGE]).await.ok();
            }
            place.run(name, &script, Some(cluster.kubeconfig())).await
        };
        tokio::select! {
            outcome = commands => outcome.and_then(|()| place.check_shown(name, &blocks)),
            never = play_image(&cluster) => match never {},
        }
    }
}

/// The commands of a terminal session, and the output that it shows. A command that ends in a backslash continues in the
/// next line.
fn session(lines: &[&str]) -> (String, Vec<String>) {
    let (mut commands, mut shown) = (String::new(), Vec::new());
    let mut continues = false;
    for line in lines {
        let command = if continues { Some(*line) } else { line.strip_prefix("$ ") };
        continues = command.is_some_and(|command| command.ends_with('\\'));
        match command {
            Some(command) => commands = commands + command + "\n",
            None if ["", "..."].contains(line) => {}
            None => shown.push((*line).to_owned()),
        }
    }
    (commands, shown)
}

/// What the blocks come to in a shell. A background command is killed when the shell ends.
fn script(name: &str, blocks: &[&Block]) -> String {
    let mut script = String::from(
        "set -eu\nbackground=\nat=start\n\
         trap 'code=$?; kill $background 2>/dev/null || true; [ $code = 0 ] || echo \"FAILED at $at: exit code $code\"' EXIT\n",
    );
    for Block { line, how, text, shown } in blocks {
        let text = match text.trim_end() {
            text if shown.is_empty() => text.to_owned(),
            text => format!("{{\n{text}\n}} > output-{line} 2>&1"),
        };
        let _ = writeln!(script, "at={name}:{line}; echo \"== $at\"");
        let _ = match how {
            How::Run => writeln!(script, "{text}"),
            How::ExpectExit(expected) => writeln!(
                script,
                "code=0\n{text} || code=$?\n\
                 [ $code = {expected} ] || {{ echo \"exit code $code, not {expected}\"; exit 1; }}"
            ),
            How::Background { until } => writeln!(
                script,
                "{text} > output-{line} 2>&1 &\nbackground=\"$background $!\"\n\
                 until grep -q '{until}' output-{line}; do kill -0 $! || {{ cat output-{line}; exit 1; }}; sleep 0.1; done"
            ),
            How::Skip | How::File { .. } => Ok(()),
        };
    }
    script
}

/// A folder like a checkout of this repository with the programs built, and a search path with `kubectl nm` on it.
struct Place {
    files: TempDir,
}

impl Place {
    fn new(blocks: &[&Block]) -> Self {
        let place = Self { files: tempfile::tempdir().unwrap() };
        let checkout = place.checkout();
        std::fs::create_dir_all(checkout.join("target/debug")).unwrap();
        for entry in std::fs::read_dir(repository()).unwrap() {
            let path = std::path::absolute(entry.unwrap().path()).unwrap();
            let name = path.file_name().unwrap();
            if name != "target" && name != ".git" {
                symlink(&path, checkout.join(name)).unwrap();
            }
        }
        for name in PROGRAMS {
            let (built, here) = (program(name), checkout.join("target/debug").join(name));
            // A program finds its folder by its own file, and what it writes there is to go with the test.
            if std::fs::hard_link(&built, &here).is_err() {
                std::fs::copy(&built, &here).unwrap();
            }
        }
        for block in blocks {
            if let How::File { path } = &block.how {
                let path = checkout.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, format!("{}\n", block.text)).unwrap();
            }
        }
        place.write_commands();
        place
    }

    fn checkout(&self) -> PathBuf {
        self.files.path().join("kubectl-nm")
    }

    /// Writes the commands that stand for kubectl and cargo.
    fn write_commands(&self) {
        let bin = self.files.path().join("bin");
        let built = self.checkout().join("target/debug");
        let built = built.display();
        let kubectl = on_path("kubectl").map_or_else(|| "false".into(), |path| path.display().to_string());
        std::fs::create_dir(&bin).unwrap();
        let kubectl = format!(
            "#!/bin/sh\nif [ \"$1\" = nm ]; then shift; exec {built}/kubectl-nm \"$@\"; fi\nexec {kubectl} \"$@\"\n"
        );
        // `cargo run -p NAME -- ARGUMENTS` runs the program that was built; `cargo build -p NAME` finds it built.
        let cargo = format!(
            "#!/bin/sh\nverb=$1\n[ \"$2\" = -p ] && [ -x {built}/\"$3\" ] || {{ echo \"not built: $*\"; exit 1; }}\n\
             program=$3\nshift 3\n[ $# = 0 ] || shift\n\
             case $verb in run) exec {built}/\"$program\" \"$@\";; build) ;; *) echo \"cargo $verb\"; exit 1;; esac\n"
        );
        for (name, text) in [("kubectl", kubectl), ("cargo", cargo)] {
            let path = bin.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// # Errors
    /// What was printed until the first command that failed.
    async fn run(&self, name: &str, script: &str, kubeconfig: Option<&Path>) -> Result<(), String> {
        let mut path = vec![self.files.path().join("bin"), self.checkout().join("target/debug")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new("sh");
        for (variable, _) in std::env::vars_os() {
            let text = variable.to_string_lossy();
            // To the programs these are settings of their own.
            if text.starts_with("NM_") || text.starts_with("CARGO") || text == "KUBECONFIG" {
                command.env_remove(&variable);
            }
        }
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let log = self.files.path().join("log");
        let output = std::fs::File::create(&log).unwrap();
        let mut shell = command
            .args(["-c", script])
            .current_dir(self.checkout())
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("HOME", self.files.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let group = shell.id().unwrap();
        let ended = tokio::time::timeout(PAGE_TIMEOUT, shell.wait()).await;
        let why = match ended {
            Ok(status) if status.as_ref().unwrap().success() => return Ok(()),
            Ok(_) => String::new(),
            Err(_) => {
                // The shell and all that it started.
                let _ = std::process::Command::new("kill").args(["--", &format!("-{group}")]).status();
                format!("{name} is not done after {PAGE_TIMEOUT:?}\n")
            }
        };
        Err(why + &std::fs::read_to_string(log).unwrap_or_default())
    }

    /// # Errors
    /// The lines that a page shows and no command printed.
    fn check_shown(&self, name: &str, blocks: &[&Block]) -> Result<(), String> {
        for Block { line, shown, .. } in blocks.iter().filter(|block| !block.shown.is_empty()) {
            if let Ok(output) = std::fs::read_to_string(self.checkout().join(format!("output-{line}"))) {
                let is_missing = |line: &&String| !output.lines().any(|printed| is_shown(line, printed));
                let missing: Vec<&String> = shown.iter().filter(is_missing).collect();
                if !missing.is_empty() {
                    return Err(format!("{name}:{line} shows {missing:#?}, but this was printed:\n{output}"));
                }
            }
        }
        Ok(())
    }
}

/// Whether a page shows a line as it was printed. Three dots stand for any text.
fn is_shown(line: &str, printed: &str) -> bool {
    // A page is for people with a terminal, who can be asked.
    let unconfirmed = printed.trim_end().replace(" --yes`", "`");
    let printed = if line.contains("--yes") { printed.trim_end() } else { unconfirmed.as_str() };
    let Some((start, rest)) = line.split_once("...") else { return printed == line };
    printed.strip_prefix(start).is_some_and(|printed| {
        let ends = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
        ends.into_iter().any(|at| is_shown(rest, &printed[at..]))
    })
}

#[test]
fn three_dots_in_a_line_stand_for_any_text() {
    let line = "node/a drained: ... pods gone in ...";
    assert!(is_shown(line, "node/a drained: 10 pods gone in 2s") && is_shown("a", "a "));
    assert!(!is_shown(line, "node/a drained: 10 pods left in 2s") && !is_shown("a", "ab"));
}

/// The path of a program on the search path.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Runs nm-reconciler beside the sandbox once it is installed there: a sandbox runs no images.
async fn play_image(cluster: &Cluster) -> Infallible {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &webhook::namespace());
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), &webhook::namespace());
    wait_until(&accounts, "nm-reconciler", "the service account", |found| found.is_some()).await;
    wait_until(&deployments, "nm-reconciler", "the deployment", |found| found.is_some()).await;
    // A sandbox schedules without preferences, so the pods might return to the node that is drained. No page drains the
    // last node.
    let node = cluster.nodes().await.pop().unwrap();
    let patch = json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}}});
    deployments.patch("nm-reconciler", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    cluster.write_reconciler_kubeconfig().await;
    let reconciler = webhook::start_with_webhook(cluster, &["--leader-elect"]);
    let address = reconciler.webhook_address().await;
    cluster.sandbox().unwrap().cluster().admission.services.serve(&webhook::namespace(), WEBHOOK, address);
    std::future::pending().await
}

#[test]
fn a_page_is_read_block_by_block() {
    let page = "<!-- cluster: none -->\n```console\n$ a \\\n  b    # c\nout\n$ d\n```\n<!-- needs: krew -->\n```sh\ne\n```\n\
                ```yaml\nf: g\n```\n<!-- exit: 3 -->\n```sh\nh\n```\n<!-- file: x/y.yaml -->\n```yaml\nz: 1\n```\n\
                <!-- background: ready -->\n```sh\nup\n```\n";
    let page = Page::parse(page).unwrap();
    assert_eq!(page.before, Before::Nothing);
    let block = |line, how, text: &str, shown: &[&str]| Block {
        line,
        how,
        text: text.to_owned(),
        shown: shown.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = [
        block(2, How::Run, "a \\\n  b    # c\nd\n", &["out"]),
        block(9, How::Skip, "e", &[]),
        block(16, How::ExpectExit(3), "h", &[]),
        block(20, How::File { path: "x/y.yaml".into() }, "z: 1", &[]),
        block(24, How::Background { until: "ready".into() }, "up", &[]),
    ];
    assert_eq!(page.blocks, expected);
}

#[test]
fn a_block_that_nobody_would_run_is_refused() {
    for (page, why) in [
        ("a\n```bash\nb\n```\n", "line 2: nobody runs a block of `bash`"),
        ("```\nb\n```\n", "line 1: nobody runs a block of ``"),
        ("```console\nb\n```\n", "line 1: the block has no command"),
        ("<!-- exist: 3 -->\n", "line 1: no such comment"),
    ] {
        assert_eq!(Page::parse(page).unwrap_err(), why);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_is_reported_with_its_line() {
    let page =
        Page::parse("<!-- cluster: none -->\n```sh\ntrue\n```\n```sh\nsh -c 'exit 7'\ntrue\n```\n").unwrap();
    let failed = page.run("page.md").await.unwrap_err();
    assert!(failed.contains("FAILED at page.md:5: exit code 7"), "{failed}");
    let page = Page::parse("<!-- cluster: none -->\n<!-- exit: 3 -->\n```sh\ntrue\n```\n").unwrap();
    assert!(page.run("page.md").await.unwrap_err().contains("exit code 0, not 3"));
    let page = Page::parse("<!-- cluster: none -->\n```console\n$ echo a; echo b\n...\nb\nc\n```\n").unwrap();
    let failed = page.run("page.md").await.unwrap_err();
    assert!(failed.contains("page.md:2 shows [\n    \"c\",\n]"), "{failed}");
}
