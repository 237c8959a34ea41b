//! What somebody can do, and cannot, with the token of the reconciler's service account.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use nm_shared::api::names::{LEASE_NAMESPACE, WEBHOOK, WEBHOOK_CONFIGURATION};
use nm_tests::cluster::{Cluster, client};
use nm_tests::webhook::namespace;

/// `VERB GROUP/RESOURCE/SUBRESOURCE`, a namespace, and a name; empty for all.
type Question<'a> = (&'a str, &'a str, &'a str);

fn attributes((access, namespace, name): Question) -> ResourceAttributes {
    let (verb, path) = access.split_once(' ').unwrap();
    let mut parts = path.splitn(3, '/').map(|part| Some(part.to_owned()));
    let mut next = || parts.next().flatten();
    let (group, resource, subresource) = (next(), next(), next());
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group,
        resource,
        subresource,
        namespace: some(namespace),
        name: some(name),
        ..ResourceAttributes::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_token_reads_no_secrets_runs_no_pods_and_grants_nothing() {
    let cluster = Cluster::start(0).await;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client(&cluster.reconciler_kubeconfig()).await);
    let own = namespace();
    let may = async |question: Question<'_>| {
        let resource_attributes = Some(attributes(question));
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        answer.status.unwrap().allowed
    };
    let denied: &[Question] = &[
        // Secrets and tokens.
        ("get /secrets", "kube-system", ""),
        ("list /secrets", "", ""),
        ("list /secrets", &own, ""),
        ("get /secrets", &own, "another"),
        ("delete /secrets", &own, WEBHOOK),
        ("get /configmaps", "kube-system", ""),
        ("create /serviceaccounts/token", "kube-system", ""),
        ("create certificates.k8s.io/certificatesigningrequests", "", ""),
        // Code that runs.
        ("create /pods", "kube-system", ""),
        ("create /pods/exec", "kube-system", ""),
        ("create /pods/ephemeralcontainers", "kube-system", ""),
        ("get /pods/log", "kube-system", ""),
        ("patch /pods", "kube-system", ""),
        ("get /nodes/proxy", "", ""),
        ("create apps/deployments", &own, ""),
        ("patch apps/deployments", &own, ""),
        ("create batch/jobs", &own, ""),
        // More permissions.
        ("create rbac.authorization.k8s.io/clusterrolebindings", "", ""),
        ("patch rbac.authorization.k8s.io/clusterroles", "", ""),
        ("bind rbac.authorization.k8s.io/clusterroles", "", ""),
        ("escalate rbac.authorization.k8s.io/clusterroles", "", ""),
        ("impersonate /users", "", ""),
        ("impersonate /serviceaccounts", "kube-system", ""),
        // The path of requests of others.
        ("create admissionregistration.k8s.io/validatingwebhookconfigurations", "", ""),
        ("patch admissionregistration.k8s.io/validatingwebhookconfigurations", "", "another"),
        ("create admissionregistration.k8s.io/mutatingwebhookconfigurations", "", ""),
        ("patch admissionregistration.k8s.io/validatingadmissionpolicies", "", ""),
        ("patch apiextensions.k8s.io/customresourcedefinitions", "", ""),
        ("create apiregistration.k8s.io/apiservices", "", ""),
        // Nodes, pods and budgets, beyond what a drain needs.
        ("delete /nodes", "", ""),
        ("create /nodes", "", ""),
        ("patch /nodes/status", "", ""),
        ("delete /pods", "kube-system", ""),
        ("patch policy/poddisruptionbudgets", "kube-system", ""),
        ("delete policy/poddisruptionbudgets", "kube-system", ""),
        ("create nodemaintenance.medik8s.io/nodemaintenances", "", ""),
        ("delete nodemaintenance.medik8s.io/nodemaintenances", "", ""),
        // Leader election and heartbeats of others.
        ("create coordination.k8s.io/leases", "kube-system", ""),
        ("patch coordination.k8s.io/leases", "kube-node-lease", ""),
        ("patch coordination.k8s.io/leases", &own, "another"),
        // Events that are not about nodes and maintenances.
        ("create events.k8s.io/events", "kube-system", ""),
        ("create events.k8s.io/events", "", ""),
    ];
    for question in denied {
        assert!(!may(*question).await, "{question:?} is allowed");
    }
    // What is left: the page about security lists it.
    for question in [
        ("patch /nodes", "", ""),
        ("create /pods/eviction", "kube-system", ""),
        ("list /pods", "", ""),
        ("patch nodemaintenance.medik8s.io/nodemaintenances", "", ""),
        ("patch admissionregistration.k8s.io/validatingwebhookconfigurations", "", WEBHOOK_CONFIGURATION),
        ("update /secrets", &own, WEBHOOK),
        ("create events.k8s.io/events", "default", ""),
        ("patch coordination.k8s.io/leases", LEASE_NAMESPACE, ""),
    ] {
        assert!(may(question).await, "{question:?} is denied");
    }
}
