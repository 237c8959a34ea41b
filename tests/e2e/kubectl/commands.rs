//! kubectl commands and their output. These tests are skipped where there is no kubectl.

use kube::api::ListParams;
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::programs::{Outcome, RunningCommand, kubectl, plugin};
use nm_tests::skip::has_kubectl;
use nm_tests::workload::{Workload, node_of, with_finalizer};
use serde_json::{Value, json};

const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// A user's shell, in a namespace.
struct Shell<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
}

impl Shell<'_> {
    /// Runs a command line; blanks separate arguments.
    async fn run(&self, line: &str) -> Outcome {
        self.run_with(line, &[]).await
    }

    /// Like [`Shell::run`], with more arguments that may contain blanks.
    async fn run_with(&self, line: &str, more: &[&str]) -> Outcome {
        let args: Vec<&str> = line.split_whitespace().chain(["-n", self.namespace]).collect();
        kubectl(self.cluster, &[&args, more].concat()).await.unwrap()
    }

    /// The output of a command line that succeeds.
    async fn output(&self, line: &str) -> String {
        self.run(line).await.ok().stdout
    }

    /// Checks that a command line succeeds and its output contains all of these parts.
    async fn shows(&self, line: &str, parts: &[&str]) {
        let output = self.output(line).await;
        for part in parts {
            assert!(output.contains(part), "no {part:?} in the output of kubectl {line}:\n{output}");
        }
    }

    /// Checks that a command line fails with this part in its error.
    async fn fails(&self, line: &str, part: &str) {
        let outcome = self.run(line).await;
        assert!(outcome.code != Some(0) && outcome.stderr.contains(part), "kubectl {line}: {outcome:?}");
    }

    /// Runs a command line in which `{}` stands for a file with this manifest.
    async fn with_file(&self, line: &str, manifest: &Value) -> Outcome {
        let file = temp_file(manifest.to_string());
        self.run(&line.replace("{}", file.path().to_str().unwrap())).await
    }
}

fn maintenance(node: &str, reason: &str) -> Value {
    json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "e2e-kubectl"}, "spec": {"nodeName": node, "reason": reason}})
}

#[tokio::test(flavor = "multi_thread")]
async fn get_and_describe_show_objects_in_every_format() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "kubectl").await;
    workload.deployment("web", 2).await;
    let shell = Shell { cluster: &cluster, namespace: workload.namespace() };
    let pod = workload.until_running("web", 2).await.remove(0);
    let (name, node) = (pod.metadata.name.clone().unwrap(), node_of(&pod));

    shell.shows("get pods", &["NAME", "READY", "STATUS", "RESTARTS", "AGE", "Running"]).await;
    shell.shows("get pods -o wide", &["IP", "NODE", "NOMINATED NODE", node]).await;
    assert_eq!(shell.output(&format!("get pod {name} -o name")).await, format!("pod/{name}\n"));
    shell.shows(&format!("get pod {name} -o yaml"), &["kind: Pod\n", &format!("  name: {name}\n")]).await;
    let listed: Value = serde_json::from_str(&shell.output("get pods -l app=web -o json").await).unwrap();
    assert_eq!((&listed["kind"], listed["items"].as_array().map(Vec::len)), (&json!("List"), Some(2)));
    assert_eq!(shell.output(&format!("get pod {name} -o jsonpath={{.spec.nodeName}}")).await, node);
    assert_eq!(shell.run("get pods -l app=other").await.stdout, "");
    shell.shows(&format!("get pods -A --field-selector spec.nodeName={node} -o name"), &[&name]).await;
    let names = shell.output("get pods -l app=web -o name").await;
    let [first, second] = names.lines().collect::<Vec<_>>()[..] else { panic!("{names}") };
    let _ = shell.output(&format!("label {first} rank=2")).await;
    let _ = shell.output(&format!("label {second} rank=1")).await;
    let by_rank = shell.output("get pods -l app=web --sort-by=.metadata.labels.rank -o name").await;
    assert_eq!(by_rank, format!("{second}\n{first}\n"), "sorted by label, not by name");
    shell.shows("get deploy,rs", &["deployment.apps/web", "replicaset.apps/web-"]).await;
    shell.shows(&format!("get node {node}"), &["STATUS", "VERSION", "Ready"]).await;
    shell.fails("get pod absent", "pods \"absent\" not found").await;
    shell.fails("get nonsense", "the server doesn't have a resource type \"nonsense\"").await;

    let node_line = format!("Name:               {node}");
    let parts = [&*node_line, "Taints:", "Unschedulable:      false", "Non-terminated Pods:", &name];
    shell.shows(&format!("describe node {node}"), &parts).await;
    let parts = ["Status:", "Running", "Controlled By:", "ReplicaSet/web-", "QoS Class:", "BestEffort"];
    shell.shows(&format!("describe pod {name}"), &parts).await;
    let assigned = format!("Successfully assigned {}/{name} to {node}", workload.namespace());
    shell
        .shows(&format!("describe pod {name}"), &["Events:", "Scheduled", "default-scheduler", &assigned])
        .await;
    shell.shows(&format!("events --for=pod/{name}"), &["Normal", "Scheduled", &assigned]).await;
    shell.shows("get events", &["SuccessfulCreate", &format!("Created pod: {name}")]).await;
    assert!(
        shell.with_file("create -f {}", &maintenance(node, "kernel")).await.ok().stdout.contains("created")
    );
    shell.shows("get nm", &["NAME", "NODE", "PHASE", "PROGRESS", "BLOCKED", "AGE", node]).await;
    shell.shows("get nm -o wide", &["PENDING", "REASON", "kernel"]).await;
    shell.shows("describe nm e2e-kubectl", &["NodeMaintenance", "Node Name:", node]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_a_change() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let shell = Shell { cluster: &cluster, namespace: "default" };
    let node = &cluster.nodes().await[0];
    let _ = shell.with_file("create -f {}", &maintenance(node, "kernel")).await.ok();
    let watch = ["get", "nm", "e2e-kubectl", "-w", "--no-headers", "-o", "custom-columns=R:.spec.reason"];
    let mut watch = RunningCommand::start("kubectl", &cluster, &watch);
    assert_eq!(watch.line().await.unwrap(), "kernel");
    let patch = r#"{"spec":{"reason":"firmware"}}"#;
    let _ = shell.run_with("patch nm e2e-kubectl --type=merge", &["-p", patch]).await.ok();
    assert_eq!(watch.line().await.unwrap(), "firmware");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_table_gets_a_line_for_each_change() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "kubectl").await;
    let shell = Shell { cluster: &cluster, namespace: workload.namespace() };
    workload.pod_on(&cluster.nodes().await[0], "seen", json!({})).await;
    let mut watch = RunningCommand::start("kubectl", &cluster, &["get", "pods", "-w", "-n", shell.namespace]);
    let mut line = async || {
        let line = watch.line().await.unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line().await, ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    // The number of ready containers differs between kubelets.
    let first = line().await;
    assert_eq!((first[0].as_str(), &first[2..4]), ("seen", &["Running".to_owned(), "0".to_owned()][..]));
    shell.shows("delete pod seen --grace-period=1 --wait=false", &["\"seen\" deleted"]).await;
    // The header is printed only once.
    loop {
        let next = line().await;
        assert_eq!(next[0], "seen");
        if next[2] == "Terminating" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_created_applied_patched_and_deleted() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "kubectl").await;
    let shell = Shell { cluster: &cluster, namespace: workload.namespace() };
    shell.shows(&format!("create deployment web --image={IMAGE} --replicas=1"), &["web created"]).await;
    for (kind, patch, replicas) in [
        ("strategic", r#"{"spec":{"replicas":3}}"#, "3"),
        ("merge", r#"{"spec":{"replicas":2}}"#, "2"),
        ("json", r#"[{"op":"replace","path":"/spec/replicas","value":1}]"#, "1"),
    ] {
        let patched = shell.run_with(&format!("patch deploy web --type={kind}"), &["-p", patch]).await.ok();
        assert_eq!(patched.stdout, "deployment.apps/web patched\n");
        assert_eq!(shell.output("get deploy web -o jsonpath={.spec.replicas}").await, replicas, "{kind}");
    }
    let node = &cluster.nodes().await[0];
    let mut object = maintenance(node, "kernel");
    for (line, reason, output) in [
        ("apply -f {}", "kernel", "created"),
        ("apply -f {}", "kernel", "unchanged"),
        ("apply -f {}", "firmware", "configured"),
        ("apply --server-side --force-conflicts -f {}", "memory", "serverside-applied"),
    ] {
        object["spec"]["reason"] = json!(reason);
        let applied = shell.with_file(line, &object).await.ok().stdout;
        assert!(applied.ends_with(&format!("/e2e-kubectl {output}\n")), "{line}: {applied}");
        assert_eq!(shell.output("get nm e2e-kubectl -o jsonpath={.spec.reason}").await, reason);
    }
    object["spec"]["nodeName"] = json!("another");
    let refused = shell.with_file("apply -f {}", &object).await;
    assert!(refused.stderr.contains("updating spec.nodeName isn't allowed"), "{refused:?}");

    let mut misspelt = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"}, "spec": {"minAvailabel": 1}});
    let refused = shell.with_file("apply -f {}", &misspelt).await;
    let output = "strict decoding error: unknown field \"spec.minAvailabel\"";
    assert!(refused.code == Some(1) && refused.stderr.contains(output), "{refused:?}");
    let warned = shell.with_file("apply --validate=warn -f {}", &misspelt).await.ok();
    assert!(warned.stderr.contains("unknown field \"spec.minAvailabel\""), "{warned:?}");
    misspelt["spec"] = json!({"minAvailable": "one", "selector": {"matchLabels": 1}});
    let refused = shell.with_file("create -f {}", &misspelt).await;
    assert!(refused.stderr.contains("cannot unmarshal number into Go struct field"), "{refused:?}");

    shell.shows("delete pdb web", &["\"web\" deleted"]).await;
    let pod = shell.output("get pods -l app=web -o jsonpath={.items[0].metadata.name}").await;
    shell.shows("delete deploy web --wait=true", &["\"web\" deleted"]).await;
    let _ = shell.run(&format!("delete pod {pod} --grace-period=0 --force --ignore-not-found")).await.ok();
    workload.until_running("web", 0).await;
    shell.shows(&format!("run one --image={IMAGE} --restart=Never"), &["pod/one created"]).await;
    shell.shows("delete pod one --grace-period=1", &["\"one\" deleted"]).await;
    shell.fails("get pod one", "not found").await;
    workload.pod_on(node, "slow", json!({"spec": {"terminationGracePeriodSeconds": 3600}})).await;
    let forced = shell.run("delete pod slow --grace-period=0 --force").await.ok();
    assert!(forced.stdout.contains("pod \"slow\" force deleted"), "{forced:?}");
    assert!(forced.stderr.contains("Immediate deletion does not wait"), "{forced:?}");
    shell.fails("get pod slow", "not found").await;
    shell.shows("delete nm e2e-kubectl", &["deleted"]).await;
}

/// Applies the output of a client-side dry run of the plugin.
async fn apply_dry_run(cluster: &Cluster, line: &str, apply: &[&str]) -> String {
    let args: Vec<&str> = line.split_whitespace().chain(["--dry-run", "client", "-o", "yaml"]).collect();
    let printed = plugin(cluster, &args).await.ok().stdout;
    let file = temp_file(printed);
    let args = [apply, &["-f", file.path().to_str().unwrap()]].concat();
    kubectl(cluster, &args).await.unwrap().ok().stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_client_side_dry_run_can_be_applied() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::bare_sandbox(0, 0, |sandbox| sandbox).await;
    let applied = apply_dry_run(&cluster, "install", &["apply", "--server-side"]).await;
    assert!(applied.contains("deployment.apps/nm-reconciler serverside-applied\n"), "{applied}");

    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await.join(" ");
    let applied = apply_dry_run(&cluster, &format!("start {nodes}"), &["apply"]).await;
    assert_eq!(applied.matches(" created\n").count(), 2, "{applied}");
    assert_eq!(cluster.maintenances().list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_labelled_tainted_cordoned_and_drained() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "kubectl").await;
    workload.deployment("drain-me", 1).await;
    let shell = Shell { cluster: &cluster, namespace: workload.namespace() };
    let node = node_of(&workload.until_running("drain-me", 1).await[0]).to_owned();
    for (verb, done, undone) in [
        ("label", "labeled", "unlabeled"),
        ("annotate", "annotated", "annotated"),
        ("taint", "tainted", "untainted"),
    ] {
        let value = if verb == "taint" { "e2e-kubectl=x:PreferNoSchedule" } else { "e2e-kubectl=x" };
        let output = |done: &str| format!("node/{node} {done}\n");
        assert_eq!(shell.output(&format!("{verb} node {node} {value}")).await, output(done));
        assert_eq!(shell.output(&format!("{verb} node {node} e2e-kubectl-")).await, output(undone));
    }
    assert_eq!(shell.output(&format!("cordon {node}")).await, format!("node/{node} cordoned\n"));
    assert_eq!(shell.output(&format!("cordon {node}")).await, format!("node/{node} already cordoned\n"));
    shell.shows(&format!("get node {node}"), &["Ready,SchedulingDisabled"]).await;
    let drained = format!("drain {node} --ignore-daemonsets --pod-selector=app=drain-me --timeout=60s");
    shell.shows(&drained, &["evicting pod", "evicted", &format!("node/{node} drained\n")]).await;
    let moved = workload.until_running("drain-me", 1).await;
    assert_ne!(node_of(&moved[0]), node);
    assert_eq!(shell.output(&format!("uncordon {node}")).await, format!("node/{node} uncordoned\n"));
    shell.shows(&format!("describe node {node}"), &["Unschedulable:      false"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_end_when_their_condition_is_met() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "kubectl").await;
    let shell = Shell { cluster: &cluster, namespace: workload.namespace() };
    let _ = shell.output(&format!("create deployment web --image={IMAGE}")).await;
    let met = "deployment.apps/web condition met\n";
    assert_eq!(shell.output("wait --for=condition=Available deploy/web --timeout=60s").await, met);
    assert_eq!(
        shell.output("wait --for=jsonpath={.status.readyReplicas}=1 deploy/web --timeout=60s").await,
        met
    );
    shell.shows("rollout status deploy/web --timeout=60s", &["successfully rolled out"]).await;
    let pod = shell.output("get pods -o name").await.trim().to_owned();
    let _ = shell.output("delete deploy web --wait=false").await;
    // If the pod is gone before kubectl starts, it prints nothing.
    let _ = shell.output(&format!("wait --for=delete {pod} --timeout=60s")).await;
    shell.fails(&format!("get {pod}"), "not found").await;
    shell.fails("wait --for=condition=Available deploy/web --timeout=5s", "not found").await;
    workload.pod_on(&cluster.nodes().await[0], "held", with_finalizer()).await;
    let _ = shell.output("delete pod held --wait=false").await;
    shell.fails("wait --for=delete pod/held --timeout=1s", "timed out waiting").await;
    workload.remove_finalizers("held").await;
    let _ = shell.output("wait --for=delete pod/held --timeout=60s").await;

    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e2e-kubectl"},
        "involvedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": workload.namespace()},
        "type": "Warning", "reason": "Remarkable", "message": "somebody noticed",
        "lastTimestamp": "2026-01-01T00:00:00Z"});
    let _ = shell.with_file("create -f {}", &event).await.ok();
    shell.shows("events --for=deployment/web --types=Warning", &["Remarkable", "Deployment/web"]).await;
    shell.shows("get events", &["LAST SEEN", "Warning", "Remarkable", "somebody noticed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_reports_its_resources_and_permissions() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let shell = Shell { cluster: &cluster, namespace: "default" };
    // `api-resources` reads the current state, while `explain` uses a cache that may lack a new definition.
    let served = shell.output("api-resources --api-group=nodemaintenance.medik8s.io").await;
    let line = served.lines().nth(1).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
    let group = "nodemaintenance.medik8s.io/v1beta1";
    assert_eq!(line, ["nodemaintenances", "nm", group, "false", "NodeMaintenance"]);
    let fields =
        ["KIND:       NodeMaintenance", "FIELD: drain <Object>", "gracePeriodSeconds", "podSelector"];
    shell.shows("explain nm.spec.drain", &fields).await;
    shell.shows("version", &["Client Version:", "Server Version: v1."]).await;
    shell.shows("auth whoami", &["Username"]).await;
    assert_eq!(shell.output("auth can-i create nodemaintenances -q").await, "");
    let nobody = shell.run("auth can-i delete nodes --as=nobody").await;
    assert_eq!((nobody.code, nobody.stdout.trim()), (Some(1), "no"));
    shell.fails("get nodes --as=nobody", "User \"nobody\" cannot list resource \"nodes\"").await;
}
