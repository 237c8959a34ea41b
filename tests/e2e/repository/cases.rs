//! The cases that every implementation of `NodeMaintenance` must pass: each has a test, and those tests also pass beside
//! suspended maintenances, which the medik8s operator does not have.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use nm_shared::Suspension;
use nm_tests::cluster::{Cluster, has_sandbox};
use nm_tests::files::repository;
use nm_tests::maintenance::{suspend, until_drained, until_suspension};
use nm_tests::reconciler::Reconciler;
use nm_tests::suspended::{PAUSED, PLANNED};

use super::evidence::{sources, tests_of};

/// The numbers in a comment such as `Cases 1, 2 and 17.`, or `Cases 19 to 23.`
fn numbers(comment: &str) -> Vec<usize> {
    let Some(rest) = comment.strip_prefix("Case") else { return Vec::new() };
    let list = rest.trim_start_matches('s').split('.').next().unwrap();
    let all: Vec<usize> =
        list.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    match all[..] {
        [from, to] if list.contains(" to ") => (from..=to).collect(),
        _ => all,
    }
}

/// The tests of cases by the names that the test runner has for them, with the numbers of their cases.
fn tests_of_cases() -> Vec<(String, Vec<usize>)> {
    let root = repository().join("tests/e2e");
    let mut found = Vec::new();
    for (path, text) in sources(&root) {
        let module = path.strip_prefix(&root).unwrap().with_extension("");
        let module: Vec<&str> = module.iter().map(|part| part.to_str().unwrap()).collect();
        let tests = tests_of(&text).into_iter().map(|(test, comment)| (test, numbers(&comment)));
        found.extend(
            tests
                .filter(|(_, cases)| !cases.is_empty())
                .map(|(test, cases)| (format!("{}::{test}", module.join("::")), cases)),
        );
    }
    found
}

#[test]
fn every_case_has_a_test() {
    let page = std::fs::read_to_string(repository().join("CONTRIBUTING.md")).unwrap();
    let (_, table) = page.split_once("\n| case | promise |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|')).skip(1);
    let documented: BTreeSet<usize> =
        rows.map(|row| row.split('|').nth(1).unwrap().trim().parse().unwrap()).collect();
    let tested: BTreeSet<usize> = tests_of_cases().into_iter().flat_map(|(_, cases)| cases).collect();
    assert_eq!(tested, documented);
    assert_eq!(numbers("Cases 1, 2 and 17. What."), [1, 2, 17]);
    assert_eq!(numbers("Cases 19 to 23."), [19, 20, 21, 22, 23]);
    assert_eq!(numbers("In Case 1."), [0; 0]);
}

// .ci/run runs this: it is as long as all tests of cases together.
#[test]
#[ignore = "it runs the tests of all cases a second time"]
fn every_case_passes_beside_suspended_maintenances() {
    if !has_sandbox("the nodes of the suspended maintenances are hidden in sandboxes") {
        return;
    }
    let tests: Vec<String> = tests_of_cases().into_iter().map(|(test, _)| test).collect();
    let output = Command::new(std::env::current_exe().unwrap())
        .env("NM_E2E_SUSPENDED", "1")
        .arg("--exact")
        .args(&tests)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("test result: ok. {} passed; 0 failed; 0 ignored", tests.len());
    assert!(output.status.success() && text.contains(&expected), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_fails_if_the_suspended_maintenances_beside_it_change() {
    for name in [PLANNED, PAUSED] {
        let cluster = Cluster::beside_suspended(1, 0, |sandbox| sandbox).await;
        assert_eq!(cluster.nodes().await.len(), 1, "their nodes are hidden");
        let reconciler = Reconciler::start(&cluster);
        until_suspension(&cluster, PLANNED, Some(Suspension::Planned)).await;
        until_suspension(&cluster, PAUSED, Some(Suspension::Paused)).await;
        assert_eq!(cluster.suspended().unwrap().check(), Ok(()));
        suspend(&cluster, name, false).await;
        until_drained(&cluster, name).await;
        suspend(&cluster, name, true).await;
        drop(reconciler);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(cluster)));
        let message = *dropped.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains(&format!(" of {name} has changed")), "{message}");
    }
}
