//! For how long a Service has no ready endpoint while the node of a pod is drained.
//!
//! `cargo bench -p nm-tests --bench surge` prints a table for one and three pods: with a budget that requires all of them,
//! drained by nm-reconciler with and without `spec.drain.surge` and by `kubectl drain`, and without a budget. A new pod takes
//! 2 s until it is Ready. All pods are on the node at first. A drain that is not done after 20 s is given up; its budget
//! allows it never. The figures come from the Service's `EndpointSlice`s.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
// The benchmark panics where it cannot measure.
#![allow(clippy::unwrap_used)]

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use kube::api::PostParams;
use kube_sandbox::controllers::kubelet::annotations::START_DELAY;
use nm_tests::cluster::Cluster;
use nm_tests::endpoints::{EndpointProbe, serve};
use nm_tests::maintenance::{start_with_drain, until_drained};
use nm_tests::programs::program_of_benchmark;
use nm_tests::reconciler::Reconciler;
use nm_tests::skip::has_kubectl;
use nm_tests::workload::{Workload, parse, pod_spec};
use serde_json::json;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

/// A drain that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Surge,
    Plain,
    Kubectl,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Surge => "kubectl nm start --surge",
            Self::Plain => "kubectl nm start",
            Self::Kubectl => "kubectl drain",
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    println!("| pods | budget | drained by | drained after | without a ready endpoint | fewest ready |");
    println!("|---|---|---|---|---|---|");
    let mut is_kept = true;
    for replicas in [1, 3] {
        for has_budget in [true, false] {
            for program in [Program::Surge, Program::Plain, Program::Kubectl] {
                let budget = if has_budget { "all of them" } else { "none" };
                if program == Program::Kubectl && !has_kubectl() {
                    println!("| {replicas} | {budget} | {} | not measured: no kubectl | | |", program.name());
                    continue;
                }
                let (took, without, fewest) = measure(replicas, has_budget, program).await;
                let drained = took.map_or_else(
                    || format!("not after {} s", LIMIT.as_secs()),
                    |took| format!("{:.1} s", took.as_secs_f64()),
                );
                let name = program.name();
                println!(
                    "| {replicas} | {budget} | {name} | {drained} | {} ms | {fewest} |",
                    without.as_millis()
                );
                if program == Program::Surge && has_budget {
                    is_kept &= took.is_some() && without.is_zero() && fewest == replicas;
                }
            }
        }
    }
    println!("{}", if is_kept { "PASS" } else { "FAIL" });
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// After what time the node is drained, for how long there was no ready endpoint, and the smallest number of them.
async fn measure(replicas: usize, has_budget: bool, program: Program) -> (Option<Duration>, Duration, usize) {
    let cluster = Cluster::of_sandbox(3, 0, |sandbox| sandbox).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "surge").await;
    let node = cluster.nodes().await.remove(0);
    let others: Vec<String> = cluster.nodes().await.into_iter().filter(|other| *other != node).collect();
    for other in &others {
        cluster.patch_node(other, json!({"spec": {"unschedulable": true}})).await;
    }
    let labels = json!({"app": "web"});
    let deployment = parse(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {START_DELAY: "2s"}}, "spec": pod_spec(),
        }},
    }));
    workload.deployments().create(&PostParams::default(), &deployment).await.unwrap();
    serve(&cluster.client, workload.namespace(), "web").await;
    let probe = EndpointProbe::start(&cluster.client, workload.namespace(), "web", replicas).await;
    if has_budget {
        workload.budget("web", replicas).await;
    }
    for other in &others {
        cluster.patch_node(other, json!({"spec": {"unschedulable": null}})).await;
    }
    let began = Instant::now();
    let drained = match program {
        Program::Kubectl => {
            let drain = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force"];
            let mut command = Command::new("kubectl");
            command.arg("--kubeconfig").arg(cluster.kubeconfig()).args(drain);
            command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            timeout(LIMIT, command.status())
                .await
                .map(|status| assert!(status.unwrap().success(), "kubectl drain failed"))
        }
        Program::Surge | Program::Plain => {
            let surge = if program == Program::Surge { "WhenBlocked" } else { "Never" };
            let program = program_of_benchmark("nm-reconciler");
            let _reconciler = Reconciler::start_build(&cluster.reconciler_kubeconfig(), &program, &[]);
            start_with_drain(&cluster, "bench", &node, json!({"surge": surge})).await;
            timeout(LIMIT, until_drained(&cluster, "bench")).await.map(drop)
        }
    };
    let took = drained.is_ok().then(|| began.elapsed());
    if drained.is_ok() {
        probe.until_ready(replicas).await;
    }
    let (without, fewest) = probe.without();
    (took, without, fewest)
}
