//! The GitHub workflows, checked as far as possible without running them: referenced files exist, actions are pinned, and
//! jobs have few permissions.

use std::collections::BTreeSet;
use std::path::Path;

use nm_tests::files::repository;
use serde_json::{Map, Value};

const RELEASE: &str = "release.yml";

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The workflows, by file name.
fn workflows() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(repository().join(".github/workflows")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let workflows: Vec<_> = names
        .map(|name| {
            let text = read(&format!(".github/workflows/{name}"));
            let workflow = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, workflow)
        })
        .collect();
    assert!(workflows.len() >= 3, "{workflows:?}");
    workflows
}

fn workflow(name: &str) -> Value {
    workflows().into_iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("there is no {name}")).1
}

fn jobs(workflow: &Value) -> &Map<String, Value> {
    workflow["jobs"].as_object().unwrap()
}

fn steps(job: &Value) -> impl Iterator<Item = &Value> {
    job["steps"].as_array().into_iter().flatten()
}

#[test]
fn actions_are_pinned_to_a_commit_with_a_version_comment() {
    for (file, workflow) in workflows() {
        for line in read(&format!(".github/workflows/{file}")).lines() {
            let Some((_, action)) = line.split_once("uses: ") else { continue };
            if action.starts_with("./") {
                assert!(repository().join(action).exists(), "{file}: {action}");
                continue;
            }
            let (commit, version) = action.split_once('@').unwrap().1.split_once(" # v").expect(action);
            assert!(commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{file}: {action}");
            assert_eq!(version.split('.').count(), 3, "{file}: {action}");
        }
        for step in jobs(&workflow).values().flat_map(steps) {
            let checks_out = step["uses"].as_str().is_some_and(|uses| uses.starts_with("actions/checkout@"));
            assert!(
                !checks_out || step["with"]["persist-credentials"] == false,
                "{file}: the token is kept: {step}"
            );
        }
    }
}

#[test]
fn only_the_release_draft_has_write_permissions() {
    for (file, workflow) in workflows() {
        let may_write = |permissions: &Value| {
            let permissions = permissions.as_object().expect("permissions are listed one by one");
            permissions.values().any(|permission| permission != "read")
        };
        assert!(!may_write(&workflow["permissions"]), "{file}");
        for (name, job) in jobs(&workflow) {
            let writes = !job["permissions"].is_null() && may_write(&job["permissions"]);
            assert_eq!(writes, file == RELEASE && name == "draft", "{file}: {name}");
            let bounded = job["timeout-minutes"].is_u64() || job["uses"].is_string();
            assert!(bounded, "{file}: {name} may run for hours");
        }
    }
}

/// Whether a word of a command is the path of a script in this repository.
fn is_ours(word: &str) -> bool {
    word.contains('/')
        && (word.ends_with("/run") || Path::new(word).extension().is_some_and(|end| end == "sh"))
}

#[test]
fn no_expression_is_expanded_in_a_command() {
    for (file, workflow) in workflows() {
        for step in jobs(&workflow).values().flat_map(steps) {
            let run = step["run"].as_str().unwrap_or_default();
            assert!(!run.contains("${{"), "{file}: pass it in env: {run}");
            for word in run.split_whitespace().filter(|word| is_ours(word)) {
                assert!(repository().join(word).exists(), "{file}: there is no {word}");
            }
        }
    }
}

#[test]
fn a_release_builds_the_platforms_and_targets_of_the_krew_package() {
    let (template, script) = (read("krew/nm.yaml"), read("krew/package.sh"));
    let release = workflow(RELEASE);
    let matrix = release["jobs"]["plugin"]["strategy"]["matrix"]["include"].as_array().unwrap();
    for entry in matrix {
        let (platform, target) = (entry["platform"].as_str().unwrap(), entry["target"].as_str().unwrap());
        assert!(template.contains(&format!("-{platform}.tar.gz\"")), "{platform}");
        assert!(script.contains(&format!("{platform}) echo {target} ;;")), "{platform}: {target}");
    }
    assert_eq!(matrix.len(), template.matches("{{addURIAndSha ").count());
}

#[test]
fn the_image_is_tested_where_its_target_is_installed() {
    assert!(read(".ci/run").contains("\n    cargo test --workspace --test e2e image -- --ignored\n"));
    let ci = workflow("ci.yml");
    let runs: Vec<&str> = steps(&ci["jobs"]["test"]).filter_map(|step| step["run"].as_str()).collect();
    let at = |wanted: &str| runs.iter().position(|run| run.contains(wanted));
    let installed = at("--target x86_64-unknown-linux-musl").expect("the target is installed");
    assert!(installed < at(".ci/run").unwrap());
}

#[test]
fn the_suites_run_on_three_successive_versions_of_kubernetes() {
    let ci = workflow("ci.yml");
    let nodes = ci["jobs"]["kind"]["strategy"]["matrix"]["node"].as_array().unwrap();
    let minors: Vec<u32> = nodes
        .iter()
        .map(|node| {
            let (version, digest) = node
                .as_str()
                .unwrap()
                .strip_prefix("kindest/node:v1.")
                .unwrap()
                .split_once("@sha256:")
                .unwrap();
            assert_eq!(digest.len(), 64, "{node}");
            version.split('.').next().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(minors, [minors[0], minors[0] - 1, minors[0] - 2]);
}

#[test]
fn workflows_and_the_dockerfile_use_the_same_compiler() {
    let dockerfile = read("Dockerfile");
    for file in ["ci.yml", RELEASE] {
        let version = workflow(file)["env"]["RUST_VERSION"].clone();
        assert!(
            dockerfile.contains(&format!("\nARG RUST_VERSION={}\n", version.as_str().unwrap())),
            "{file}: {version}"
        );
    }
}

#[test]
fn contributing_lists_exactly_the_jobs_of_the_workflows() {
    // Rows of the table start with the workflow and the job.
    let documented: BTreeSet<String> = read("CONTRIBUTING.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(".yml` | `"))
        .map(|(file, rest)| format!("{file}.yml {}", rest.split('`').next().unwrap_or_default()))
        .collect();
    let existing: BTreeSet<String> = workflows()
        .iter()
        .flat_map(|(file, workflow)| jobs(workflow).keys().map(move |job| format!("{file} {job}")))
        .collect();
    assert_eq!(documented, existing);
}
