//! The situations of a budget that keeps one pod.

use serde_json::{Value, json};

use super::*;

/// What the cluster shows, and what follows the numbers of the budget in the words of `explain`.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) situation: Situation,
    /// The sentence that names the cause.
    pub(super) what: String,
    /// The commands, one a line.
    pub(super) commands: String,
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn rows() -> Vec<Row> {
    let with_nodes = |third: Value, nodes: Vec<Value>, in_maintenance: Vec<&'static str>| Situation {
        nodes,
        in_maintenance,
        ..beside(third)
    };
    let warned = |third: Value, reason: &'static str, message: &'static str| Situation {
        warnings: vec![("web-2", reason, message)],
        ..beside(third)
    };
    let unfit = || pending("Unschedulable", UNFIT);
    let creating = || waiting("ContainerCreating", "");
    let not_counted = || Situation {
        budget: edited(min_available(json!(2), (3, 2, 2)), "/metadata/generation", json!(2)),
        ..Situation::default()
    };
    let status_of = |path: &str, value: Value| Situation {
        budget: edited(min_available(json!(2), (3, 2, 2)), path, value),
        ..Situation::default()
    };
    let evicted = || status_of("/status/disruptedPods", json!({"web-9": "2026-01-02T03:07:20Z"}));
    let too_few = "The pods that the budget selects are Ready, but the budget requires more pods than exist: the controller of a pod that has just left may be about to create another one.";
    let sync_failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
        "message": "found no controllers for pod \"web-0\"", "lastTransitionTime": "2026-01-02T03:00:00Z"}]);
    let quota = IncompleteOwner {
        namespace: "shop".into(),
        owner: Owner::new(OwnerKind::Deployment, "web"),
        missing: 1,
        message: "pods \"web-6c4-x\" is forbidden: exceeded quota: pods".into(),
    };
    let gated = edited(
        pending("SchedulingGated", ""),
        "/spec/schedulingGates",
        json!([{"name": "example.com/quota"}]),
    );
    let gate = json!([{"conditionType": "example.com/lb"}]);
    let all_ready = container(json!({"running": {}}), json!({"ready": true, "started": true}));
    let unmet = edited(unready("web-2", "n2", all_ready.clone()), "/spec/readinessGates", gate);
    let init = json!([{"name": "migrate", "image": "m", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"running": {}}}]);
    let initializing = edited(waiting("PodInitializing", ""), "/status/initContainerStatuses", init);
    let sidecar = json!([{"name": "mesh", "image": "m", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {}}}]);
    let meshed = edited(running(json!({"started": true})), "/status/initContainerStatuses", sidecar);
    let meshed = edited(meshed, "/spec/initContainers", json!([{"name": "mesh", "restartPolicy": "Always"}]));
    let failing_init = json!([{"name": "migrate", "image": "m", "imageID": "", "ready": false, "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}}]);
    let failing_init = edited(waiting("PodInitializing", ""), "/status/initContainerStatuses", failing_init);
    let exited = |code: i32| {
        let state = json!({"terminated": {"exitCode": code, "reason": "Error"}});
        unready("web-2", "n2", container(state, json!({"restartCount": 1})))
    };
    let between = |finished: &str| {
        let last = json!({"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": finished}});
        running(json!({"started": true, "restartCount": 4, "lastState": last}))
    };
    let selects_green = edited(unfit(), "/spec/nodeSelector", json!({"pool": "green"}));
    let probe = || running(json!({"started": true}));
    // It succeeds 131 s after the start of the container at the latest, if it does at first.
    let delayed = |pod: Value| {
        let probe = json!({"initialDelaySeconds": 120, "periodSeconds": 10, "httpGet": {"port": 80}});
        edited(pod, "/spec/containers/0/readinessProbe", probe)
    };
    let runs_since =
        |at: &str| edited(delayed(probe()), "/status/containerStatuses/0/state/running/startedAt", json!(at));
    let just_created = || edited(creating(), "/status/startTime", json!("2026-01-02T03:07:00Z"));
    let first_probe = "shop/web-2 has been starting on n2 for 1m25s: the readiness probe of container app (initialDelaySeconds 120, \
                       periodSeconds 10) has not succeeded yet.";
    let probing = "shop/web-2 on n2: container app runs and is not ready.";
    let not_yet = "shop/web-2 has been starting on n2 for 1m25s: container app is not ready yet.";
    let starting = "shop/web-2 is starting on n2.";
    let waits_for_node = format!("shop/web-2 is Pending, because the scheduler finds no node: {UNFIT}");
    let patch = |spec: &str| format!("kubectl -n shop patch pdb web --type=merge -p '{{\"spec\":{spec}}}'");
    let surge = r#"kubectl patch nm n1 --type=merge -p '{"spec":{"drain":{"surge":"WhenBlocked"}}}'"#;
    let or_surge = |command: &str| format!("{command}\n{surge}");
    let (two, one) = (or_surge(&patch("{\"minAvailable\":2}")), or_surge(&patch("{\"maxUnavailable\":1}")));
    let instead = or_surge(&patch("{\"minAvailable\":null,\"maxUnavailable\":1}"));
    let rows: Vec<(&'static str, Situation, &str, &str)> = vec![
        // The scheduler.
        (
            "the only node is drained",
            with_nodes(unfit(), vec![cordoned("n1")], vec!["n1"]),
            "No node is left for the replacement shop/web-2: n1 is in maintenance.",
            "kubectl nm stop n1",
        ),
        (
            "all nodes are drained",
            with_nodes(unfit(), vec![cordoned("n1"), cordoned("n2")], vec!["n1", "n2"]),
            "No node is left for the replacement shop/web-2: n1, n2 are in maintenance.",
            "kubectl nm stop n2\nkubectl nm stop n1",
        ),
        (
            "the other node is cordoned by hand",
            with_nodes(unfit(), vec![cordoned("n1"), node("n2", json!({"unschedulable": true}))], vec!["n1"]),
            "No node is left for the replacement shop/web-2: n1 is in maintenance, and n2 is cordoned.",
            "kubectl uncordon n2\nkubectl nm stop n1",
        ),
        (
            "the other node has a taint that the pod does not tolerate",
            with_nodes(
                unfit(),
                vec![
                    cordoned("n1"),
                    node("cp", json!({"taints": [{"key": "role", "effect": "NoSchedule"}]})),
                ],
                vec!["n1"],
            ),
            "No node is left for the replacement shop/web-2: n1 is in maintenance; cp has the taint role:NoSchedule.",
            "kubectl nm stop n1",
        ),
        (
            "another maintenance has the only node that the pod fits",
            with_nodes(unfit(), vec![cordoned("n3")], vec!["n1", "n3"]),
            "No node is left for the replacement shop/web-2: n3 is in maintenance.",
            "kubectl nm stop n3",
        ),
        (
            "another node is left, and it is full",
            with_nodes(unfit(), vec![cordoned("n1"), node("n2", json!({}))], vec!["n1"]),
            &waits_for_node,
            DESCRIBE_OR_STOP,
        ),
        (
            "the pod selects nodes that do not exist",
            with_nodes(selects_green, vec![cordoned("n1"), node("n2", json!({}))], vec!["n1"]),
            &waits_for_node,
            DESCRIBE,
        ),
        (
            "the scheduler has not tried it yet",
            beside(pod("web-2", "", json!({"phase": "Pending"}))),
            "shop/web-2 is not scheduled yet.",
            DESCRIBE,
        ),
        (
            "a scheduling gate",
            beside(gated),
            "shop/web-2 is Pending: scheduling gates example.com/quota.",
            DESCRIBE,
        ),
        // Containers.
        (
            "the image cannot be pulled",
            beside(waiting("ErrImagePull", "manifest unknown")),
            "shop/web-2 on n2: the image shop/web:2 cannot be pulled (ErrImagePull): manifest unknown.",
            DESCRIBE,
        ),
        (
            "the image is backed off",
            beside(waiting("ImagePullBackOff", "Back-off pulling image")),
            "shop/web-2 on n2: the image shop/web:2 cannot be pulled (ImagePullBackOff): Back-off pulling image.",
            DESCRIBE,
        ),
        (
            "the name of the image is wrong",
            beside(waiting("InvalidImageName", "")),
            "shop/web-2 on n2: the image shop/web:2 cannot be pulled (InvalidImageName).",
            DESCRIBE,
        ),
        (
            "a crash loop",
            beside(crashing("web-2", "n2", 1, "Error")),
            "shop/web-2 on n2: container app keeps exiting with exit code 1, 3 restarts so far.",
            "kubectl -n shop logs web-2 -c app --previous",
        ),
        (
            "out of memory",
            beside(crashing("web-2", "n2", 137, "OOMKilled")),
            "shop/web-2 on n2: container app keeps exiting with exit code 137 (OOMKilled), 3 restarts so far.",
            "kubectl -n shop logs web-2 -c app --previous",
        ),
        (
            "it has just exited",
            beside(exited(7)),
            "shop/web-2 on n2: container app keeps exiting with exit code 7, 1 restart so far.",
            "kubectl -n shop logs web-2 -c app",
        ),
        (
            "it runs between two crashes",
            beside(between("2026-01-02T03:06:00Z")),
            "shop/web-2 on n2: container app keeps exiting with exit code 1, 4 restarts so far.",
            "kubectl -n shop logs web-2 -c app --previous",
        ),
        ("it crashed long ago", beside(between("2026-01-01T03:06:00Z")), not_yet, LOGS),
        (
            "an init container crashes",
            beside(failing_init),
            "shop/web-2 on n2: container migrate keeps exiting with exit code 2, 2 restarts so far.",
            "kubectl -n shop logs web-2 -c migrate --previous",
        ),
        (
            "an init container runs",
            beside(initializing),
            "shop/web-2 is starting on n2: init container migrate runs.",
            "kubectl -n shop logs web-2 -c migrate",
        ),
        ("a sidecar runs", beside(meshed), not_yet, LOGS),
        (
            "a missing Secret",
            beside(waiting("CreateContainerConfigError", "secret \"db\" not found")),
            "shop/web-2 on n2: container app cannot be created (CreateContainerConfigError): secret \"db\" not found.",
            DESCRIBE,
        ),
        ("it starts", beside(creating()), starting, DESCRIBE),
        (
            "it has just been created",
            beside(just_created()),
            "shop/web-2 has been starting on n2 for 25s.",
            "",
        ),
        (
            "it was created a while ago",
            beside(edited(creating(), "/status/startTime", json!("2026-01-02T03:00:00Z"))),
            "shop/web-2 has been starting on n2 for 7m25s.",
            DESCRIBE,
        ),
        (
            "a volume is still attached to the old node",
            warned(creating(), "FailedAttachVolume", "Multi-Attach error for volume \"pv-1\""),
            "shop/web-2 on n2: a volume is not available: Multi-Attach error for volume \"pv-1\".",
            DESCRIBE,
        ),
        (
            "a volume cannot be mounted",
            warned(creating(), "FailedMount", "MountVolume.SetUp failed: timed out"),
            "shop/web-2 on n2: a volume is not available: MountVolume.SetUp failed: timed out.",
            DESCRIBE,
        ),
        (
            "no network",
            warned(creating(), "FailedCreatePodSandBox", "failed to set up network"),
            "shop/web-2 on n2: the pod sandbox cannot be created: failed to set up network.",
            DESCRIBE,
        ),
        ("an event of another kind", warned(creating(), "FailedScheduling", "x"), starting, DESCRIBE),
        (
            "a startup probe",
            beside(running(json!({"started": false}))),
            "shop/web-2 has been starting on n2 for 1m25s: the startup probe of container app has not succeeded yet.",
            "",
        ),
        ("a readiness probe that has not begun", beside(delayed(probe())), first_probe, ""),
        (
            "a readiness probe that has not begun after a startup probe that failed",
            warned(delayed(probe()), "Unhealthy", "Startup probe failed: connection refused"),
            first_probe,
            "",
        ),
        (
            "a readiness probe that has failed soon",
            warned(delayed(probe()), "Unhealthy", "Readiness probe failed: statuscode: 503"),
            "shop/web-2 has been starting on n2 for 1m25s: container app is not ready yet: Readiness probe failed: statuscode: 503.",
            LOGS,
        ),
        (
            "a readiness probe that needs no more than twice its time",
            beside(runs_since("2026-01-02T03:03:04Z")),
            "shop/web-2 has been starting on n2 for 4m21s: the readiness probe of container app (initialDelaySeconds 120, \
             periodSeconds 10) has not succeeded yet.",
            "",
        ),
        ("a readiness probe whose time is over", beside(runs_since("2026-01-02T03:03:03Z")), probing, LOGS),
        ("a readiness probe", beside(probe()), not_yet, LOGS),
        (
            "a readiness probe with its event",
            warned(probe(), "Unhealthy", "Readiness probe failed: statuscode: 503"),
            "shop/web-2 has been starting on n2 for 1m25s: container app is not ready yet: Readiness probe failed: statuscode: 503.",
            LOGS,
        ),
        (
            "a readiness gate",
            beside(unmet),
            "shop/web-2 on n2: the containers are ready, the readiness gates example.com/lb are not.",
            DESCRIBE,
        ),
        (
            "its node does not report",
            beside(unready("web-2", "n2", all_ready.clone())),
            "shop/web-2 is not Ready, because node n2 does not report.",
            "kubectl describe node n2",
        ),
        // Pods that leave.
        (
            "a pod is terminating",
            beside(terminating("2026-01-02T03:08:05Z")),
            "shop/web-2 is terminating, with 40s of its grace period left.",
            DESCRIBE,
        ),
        (
            "a pod is terminating past its grace period",
            beside(terminating("2026-01-02T03:07:05Z")),
            "shop/web-2 is terminating: its grace period ended 20s ago.",
            DESCRIBE,
        ),
        (
            "a pod has failed for good",
            beside(pod("web-2", "n2", json!({"phase": "Failed", "reason": "Evicted"}))),
            "shop/web-2 is finished (Evicted) and not replaced.",
            DESCRIBE,
        ),
        (
            "what is stuck is named before what passes",
            Situation {
                pods: vec![
                    ready("web-0", "n1"),
                    creating(),
                    edited(crashing("web-3", "n3", 1, "Error"), "/spec/nodeName", json!("n3")),
                ],
                ..Situation::default()
            },
            "shop/web-3 on n3: container app keeps exiting with exit code 1, 3 restarts so far.",
            "kubectl -n shop logs web-3 -c app --previous",
        ),
        // Owners.
        (
            "a quota",
            Situation { incomplete: vec![quota.clone()], ..Situation::default() },
            "deploy/web could not create 1 pod when it last tried: pods \"web-6c4-x\" is forbidden: exceeded quota: pods.",
            "kubectl -n shop get resourcequotas",
        ),
        (
            "a quota, and a budget of as many pods as there are",
            Situation { incomplete: vec![quota], ..never("minAvailable", json!(3), 3) },
            "deploy/web could not create 1 pod when it last tried: pods \"web-6c4-x\" is forbidden: exceeded quota: pods.",
            "kubectl -n shop get resourcequotas",
        ),
        ("nothing is not Ready, and the budget counts on more", Situation::default(), too_few, BUDGET),
        (
            "the status of the budget is older than its pods",
            status_of("/status/currentHealthy", json!(0)),
            "More pods of the budget are Ready than the disruption controller has counted.",
            RECOUNT,
        ),
        // The budget.
        (
            "minAvailable of all pods",
            never("minAvailable", json!(3), 3),
            "The budget can never allow an eviction: minAvailable is 3, and it has 3 pods.",
            &two,
        ),
        (
            "minAvailable of 100%",
            never("minAvailable", json!("100%"), 3),
            "The budget can never allow an eviction: minAvailable is 100%, and it has 3 pods.",
            &instead,
        ),
        (
            "maxUnavailable of 0",
            never("maxUnavailable", json!(0), 3),
            "The budget can never allow an eviction: maxUnavailable is 0, and it has 3 pods.",
            &one,
        ),
        (
            "maxUnavailable of 0%",
            never("maxUnavailable", json!("0%"), 2),
            "The budget can never allow an eviction: maxUnavailable is 0%, and it has 2 pods.",
            &one,
        ),
        (
            "the only pod of a Deployment",
            never("minAvailable", json!(1), 1),
            "The budget can never allow an eviction: minAvailable is 1, and it has 1 pod.",
            surge,
        ),
        (
            "the only pod of a StatefulSet",
            Situation {
                pods: vec![edited(
                    ready("web-0", "n1"),
                    "/metadata/ownerReferences/0/kind",
                    json!("StatefulSet"),
                )],
                ..never("minAvailable", json!(1), 1)
            },
            "The budget can never allow an eviction: minAvailable is 1, and it has 1 pod.",
            "kubectl -n shop edit pdb web",
        ),
        (
            "pods without a controller that can be scaled",
            status_of("/status/conditions", sync_failed.clone()),
            "The disruption controller cannot count the pods of the budget: found no controllers for pod \"web-0\".",
            BUDGET,
        ),
        (
            "the same, and it has never been able to",
            status_of("/status", json!({"disruptionsAllowed": 0, "conditions": sync_failed})),
            "The disruption controller cannot count the pods of the budget: found no controllers for pod \"web-0\".",
            BUDGET,
        ),
        (
            "a pod without a controller, and a budget that counts the pods of controllers",
            Situation {
                budget: edited(
                    min_available(json!(0), (0, 0, 1)),
                    "/spec",
                    json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}),
                ),
                pods: vec![edited(ready("web-0", "n1"), "/metadata/ownerReferences", json!([]))],
                ..Situation::default()
            },
            "The disruption controller cannot count the pods of the budget: they have no controller.",
            BUDGET,
        ),
        (
            "the budget is new",
            not_counted(),
            "The disruption controller has not counted the pods of the budget yet.",
            BUDGET,
        ),
        (
            "evictions were just accepted",
            Situation { pods: beside(ready("web-9", "n3")).pods, ..evicted() },
            "Enough pods are Ready; the budget still counts evictions that were just accepted.",
            BUDGET,
        ),
        ("an eviction was just accepted, and the pod has left", evicted(), too_few, BUDGET),
        (
            "the budget allows it by now",
            status_of("/status/disruptionsAllowed", json!(1)),
            "By now, the budget allows 1 eviction.",
            "kubectl nm status n1",
        ),
        (
            "the pod has left by now",
            Situation { pods: vec![ready("web-0", "n3")], ..Situation::default() },
            "The pods have left the node by now, or are terminating.",
            "kubectl nm status n1",
        ),
        // The pods that are kept are not Ready themselves.
        (
            "a pod crashes under its own budget",
            own(crashing("web-0", "n1", 1, "Error")),
            "The budget protects pods that are not Ready themselves: shop/web-0 on n1: container app keeps exiting with exit \
             code 1, 3 restarts so far.",
            ALWAYS_ALLOW,
        ),
        (
            "a pod whose image is gone under its own budget",
            own(edited(
                edited(waiting("ImagePullBackOff", ""), "/metadata/name", json!("web-0")),
                "/spec/nodeName",
                json!("n1"),
            )),
            "The budget protects pods that are not Ready themselves: shop/web-0 on n1: the image shop/web:2 cannot be pulled \
             (ImagePullBackOff).",
            ALWAYS_ALLOW,
        ),
        (
            "a pod starts under its own budget",
            own(edited(edited(creating(), "/metadata/name", json!("web-0")), "/spec/nodeName", json!("n1"))),
            "shop/web-0 is starting on n1.",
            "kubectl -n shop describe pod web-0",
        ),
        (
            "a pod under its own budget has been started again",
            own(edited(
                edited(delayed(probe()), "/metadata/name", json!("web-0")),
                "/spec/nodeName",
                json!("n1"),
            )),
            "shop/web-0 has been starting on n1 for 1m25s: the readiness probe of container app (initialDelaySeconds 120, \
             periodSeconds 10) has not succeeded yet.",
            "",
        ),
        (
            "the node of a pod does not report, which may well run",
            own(unready("web-0", "n1", all_ready)),
            "shop/web-0 is not Ready, because node n1 does not report.",
            "kubectl describe node n1",
        ),
    ];
    let row = |(name, situation, what, commands): (&'static str, Situation, &str, &str)| Row {
        name,
        situation,
        what: what.to_owned(),
        commands: commands.to_owned(),
    };
    rows.into_iter().map(row).collect()
}
