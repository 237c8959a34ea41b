use serde_json::{Value, json};

use super::*;

fn check(code: u16, message: &str, expected: &Refusal) {
    check_caused(code, message, &json!({}), expected);
}

fn check_caused(code: u16, message: &str, details: &Value, expected: &Refusal) {
    let status = json!({"status": "Failure", "code": code, "message": message, "details": details});
    let status: Status = serde_json::from_value(status).unwrap();
    assert_eq!(Refusal::from(&status), *expected, "{code} {message}");
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with an optional access")]
fn access(user: &str, verb: &str, resource: &str) -> Option<ForbiddenAccess> {
    let [user, verb, resource] = [user, verb, resource].map(str::to_owned);
    Some(ForbiddenAccess { user, verb, resource })
}

fn policy(name: &str, binding: Option<&str>) -> Refusal {
    Refusal::Policy(PolicyFacts { name: name.to_owned(), binding: binding.map(str::to_owned) })
}

#[test]
fn access_control_names_the_user_the_verb_and_the_resource() {
    for (message, expected) in [
        (
            "pods \"a\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\" in the \
             namespace \"shop\"",
            access("u", "create", "pods/eviction"),
        ),
        (
            "nodes is forbidden: User \"system:serviceaccount:a:b\" cannot list resource \"nodes\" in API group \"\" at \
             the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io \"r\" not found",
            access("system:serviceaccount:a:b", "list", "nodes"),
        ),
        ("forbidden: User \"u\" cannot get path \"/metrics\"", None),
    ] {
        check(403, message, &Refusal::AccessDenied(expected));
    }
    check(401, "Unauthorized", &Refusal::Unauthenticated);
}

#[test]
fn a_policy_is_named_with_its_binding_whatever_the_code_and_whatever_it_says() {
    let denied = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'no-evictions' with binding 'shop' denied request: ";
    for code in [403, 413, 422] {
        for says in ["not before noon", "User \"u\" cannot evict resource \"pods\"", "exceeded quota: q, x"] {
            check(code, &format!("{denied}{says}"), &policy("no-evictions", Some("shop")));
        }
    }
    let faulty = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: x";
    check(422, faulty, &policy("p", None));
    check(403, "policy 'p' with binding 'b' denied request: no such key: x", &policy("p", Some("b")));
    check(403, "policy \"p\" denied request: x is forbidden: User \"u\" cannot", &policy("p", None));
}

#[test]
fn a_webhook_is_named_whether_it_refuses_or_does_not_respond() {
    let denied =
        "admission webhook \"a.io\" denied the request: pods \"a\" is forbidden: User \"u\" cannot …";
    for code in [400, 403, 422, 500] {
        check(code, denied, &Refusal::Webhook { name: "a.io".to_owned() });
    }
    let failed = "Internal error occurred: failed calling webhook \"a.io\": failed to call webhook: no route";
    check(500, failed, &Refusal::UnreachableWebhook { name: "a.io".to_owned() });
}

#[test]
fn what_other_plugins_refuse_is_not_missing_access() {
    let quota = || Refusal::Quota { name: "small".to_owned() };
    for (why, expected) in [
        (
            "exceeded quota: small, requested: count/leases.coordination.k8s.io=1, used: \
             count/leases.coordination.k8s.io=1, limited: count/leases.coordination.k8s.io=1",
            quota(),
        ),
        (
            "failed quota: small: must specify limits.cpu for: c",
            Refusal::QuotaWithoutAmount { name: "small".to_owned() },
        ),
        ("status unknown for quota: small, resources: pods", quota()),
        ("cannot set an ownerRef on a resource you can't delete: , <nil>", Refusal::OwnerReference),
        (
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>",
            Refusal::OwnerReference,
        ),
        ("not yet ready to handle request", Refusal::NotReady),
        ("node \"a\" is not allowed to modify node \"b\"", Refusal::Other),
        ("violates PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true)", Refusal::Other),
    ] {
        check(403, &format!("leases.coordination.k8s.io \"a\" is forbidden: {why}"), &expected);
    }
    for (code, message) in
        [(403, "no"), (403, ""), (422, "NodeMaintenance \"a\" is invalid: x"), (500, "User \"u\" cannot")]
    {
        check(code, message, &Refusal::Other);
    }
}

#[test]
fn a_terminating_namespace_is_recognized_by_its_cause() {
    let message = "leases \"a\" is forbidden: unable to create new content in namespace x because it is being terminated";
    let details =
        json!({"causes": [{"reason": "NamespaceTerminating", "message": "namespace x is being terminated"}]});
    check_caused(403, message, &details, &Refusal::NamespaceTerminating);
    check(403, message, &Refusal::Other);
}

/// What kube-apiserver 1.36.2 answered: with `NodeRestriction`, `OwnerReferencesPermissionEnforcement` and
/// `MutatingAdmissionPolicy` enabled, to a service account, a node and an administrator.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn the_answers_of_a_real_api_server_are_recognized() {
    let user = "system:serviceaccount:refusals:nobody";
    let by_policy = || policy("no-evictions", Some("everywhere"));
    let denied = |verb: &str, resource: &str| Refusal::AccessDenied(access(user, verb, resource));
    for (code, message, expected) in [
        (
            403,
            r#"pods "p" is forbidden: ValidatingAdmissionPolicy 'no-evictions' with binding 'everywhere' denied request: not today"#,
            by_policy(),
        ),
        (
            413,
            r#"pods "p" is forbidden: ValidatingAdmissionPolicy 'no-evictions' with binding 'everywhere' denied request: not today"#,
            by_policy(),
        ),
        (
            422,
            r#"pods "p" is forbidden: ValidatingAdmissionPolicy 'no-evictions' with binding 'everywhere' denied request: failed expression: object.metadata.name != 'p'"#,
            by_policy(),
        ),
        (
            422,
            r#"pods "p" is forbidden: ValidatingAdmissionPolicy 'no-evictions' with binding 'everywhere' denied request: expression 'object.metadata.labels['x'] == 'y'' resulted in error: no such key: labels"#,
            by_policy(),
        ),
        (
            403,
            "policy 'mutate' with binding 'mutate-all' denied request: expression 'Object{metadata: Object.metadata{labels: {'a': object.metadata.labels['nope']}}}' resulted in error: no such key: labels",
            policy("mutate", Some("mutate-all")),
        ),
        (
            403,
            r#"pods "p" is forbidden: User "system:serviceaccount:refusals:nobody" cannot create resource "pods/eviction" in API group "" in the namespace "refusals""#,
            denied("create", "pods/eviction"),
        ),
        (
            403,
            r#"pods "p" is forbidden: User "system:serviceaccount:refusals:nobody" cannot create resource "pods/eviction" in API group "" in the namespace "refusals": RBAC: role.rbac.authorization.k8s.io "missing" not found"#,
            denied("create", "pods/eviction"),
        ),
        (
            403,
            r#"nodes is forbidden: User "system:serviceaccount:refusals:nobody" cannot list resource "nodes" in API group "" at the cluster scope"#,
            denied("list", "nodes"),
        ),
        (
            403,
            r#"nodes is forbidden: User "system:serviceaccount:refusals:nobody" cannot impersonate-on:user-info:list resource "nodes" in API group "" at the cluster scope"#,
            denied("impersonate-on:user-info:list", "nodes"),
        ),
        (
            403,
            r#"serviceaccounts "default" is forbidden: User "system:serviceaccount:refusals:nobody" cannot create resource "serviceaccounts/token" in API group "" in the namespace "refusals""#,
            denied("create", "serviceaccounts/token"),
        ),
        (
            403,
            r#"forbidden: User "system:serviceaccount:refusals:nobody" cannot get path "/metrics""#,
            Refusal::AccessDenied(None),
        ),
        (
            403,
            "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"system:serviceaccount:refusals:nobody\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}",
            Refusal::Other,
        ),
        (
            403,
            r#"leases.coordination.k8s.io "l1" is forbidden: exceeded quota: few-leases, requested: count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=0, limited: count/leases.coordination.k8s.io=0"#,
            Refusal::Quota { name: "few-leases".to_owned() },
        ),
        (
            403,
            r#"pods "q0" is forbidden: failed quota: cpu: must specify limits.cpu for: c"#,
            Refusal::QuotaWithoutAmount { name: "cpu".to_owned() },
        ),
        (
            403,
            r#"pods "ps" is forbidden: violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)"#,
            Refusal::Other,
        ),
        (
            403,
            r#"nodes "node-b" is forbidden: node "node-a" is not allowed to modify node "node-b""#,
            Refusal::Other,
        ),
        (
            403,
            r#"nodes "node-a" is forbidden: node "node-a" is not allowed to modify taints"#,
            Refusal::Other,
        ),
        (
            403,
            r#"configmaps "c" is forbidden: cannot set an ownerRef on a resource you can't delete: RBAC: role.rbac.authorization.k8s.io "missing" not found, <nil>"#,
            Refusal::OwnerReference,
        ),
        (
            403,
            r#"configmaps "c" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#,
            Refusal::OwnerReference,
        ),
        (
            500,
            r#"Internal error occurred: failed calling webhook "dead.example.com": failed to call webhook: Post "https://127.0.0.1:1/x?timeout=2s": dial tcp 127.0.0.1:1: connect: connection refused"#,
            Refusal::UnreachableWebhook { name: "dead.example.com".to_owned() },
        ),
        (401, "Unauthorized", Refusal::Unauthenticated),
    ] {
        check(code, message, &expected);
    }
    let message = r#"leases.coordination.k8s.io "l" is forbidden: unable to create new content in namespace ending because it is being terminated"#;
    let cause = json!({"reason": "NamespaceTerminating", "message": "namespace ending is being terminated", "field": "metadata.namespace"});
    let details = json!({"name": "l", "group": "coordination.k8s.io", "kind": "leases", "causes": [cause]});
    check_caused(403, message, &details, &Refusal::NamespaceTerminating);
}
