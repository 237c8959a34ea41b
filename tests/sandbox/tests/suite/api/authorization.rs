//! Who may do what: roles and bindings, and the words in which a real API server refuses.

use std::sync::Arc;
use std::time::Duration;

use crate::admin_client::{begin, json_of};
use crate::user_client::{Asker, RBAC, bind, binding, cluster_role, create, namespace};
use kube_sandbox::http::Api;
use serde_json::{Value, json};

#[tokio::test]
async fn a_user_without_a_role_gets_the_servers_error_message() {
    let api = begin();
    let jane = Asker::user(&api, "jane", &[]);
    for (method, path, expected) in [
        (
            "GET",
            "/api/v1/nodes",
            r#"nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope"#,
        ),
        (
            "GET",
            "/api/v1/namespaces/a",
            r#"namespaces "a" is forbidden: User "jane" cannot get resource "namespaces" in API group "" in the namespace "a""#,
        ),
        (
            "GET",
            "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dx",
            r#"pods "x" is forbidden: User "jane" cannot watch resource "pods" in API group "" in the namespace "a""#,
        ),
        (
            "DELETE",
            "/api/v1/namespaces/a/pods",
            r#"pods is forbidden: User "jane" cannot deletecollection resource "pods" in API group "" in the namespace "a""#,
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/x/status",
            r#"deployments.apps "x" is forbidden: User "jane" cannot patch resource "deployments/status" in API group "apps" in the namespace "a""#,
        ),
        (
            "GET",
            "/apis/foo.bar/v1/things/x/sub",
            r#"things.foo.bar "x" is forbidden: User "jane" cannot get resource "things/sub" in API group "foo.bar" at the cluster scope"#,
        ),
        ("GET", "/metrics", r#"forbidden: User "jane" cannot get path "/metrics""#),
        ("POST", "/apis", r#"forbidden: User "jane" cannot post path "/apis""#),
    ] {
        assert_eq!(jane.refused(method, path).await, expected);
    }
    // Rights come before everything that is wrong with a request.
    let (code, _) = jane.ask("POST", "/api/v1/nodes", &json!("no node")).await;
    assert_eq!(code, 403);
    assert_eq!(jane.and("accept", "text/html").get("/api/v1/nodes").await, 403);
}

#[tokio::test]
async fn health_is_public_and_discovery_needs_authentication() {
    let api = begin();
    let (jane, nobody) = (Asker::user(&api, "jane", &[]), Asker::with_token(&api, ""));
    for (path, known, unknown) in [
        ("/healthz", 200, 200),
        ("/version", 200, 200),
        ("/api", 200, 403),
        ("/apis/apps/v1", 200, 403),
        ("/openapi/v3", 200, 403),
    ] {
        assert_eq!((jane.get(path).await, nobody.get(path).await), (known, unknown), "{path}");
    }
    assert_eq!(Asker::with_token(&api, "bogus").get("/healthz").await, 401);
    assert_eq!(nobody.and("authorization", "Basic YTpi").get("/api/v1/nodes").await, 403);
}

#[tokio::test]
async fn a_role_gives_what_its_rules_say_as_soon_as_it_is_bound_and_until_it_is_not() {
    let api = begin();
    let jane = Asker::user(&api, "jane", &["devs"]);
    let joe = Asker::user(&api, "joe", &[]);
    let read = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]);
    cluster_role(&api, "read", read).await;
    assert_eq!(jane.get("/api/v1/nodes").await, 403);
    bind(&api, "devs", "read", &json!([{"kind": "Group", "name": "devs"}])).await;
    assert_eq!(jane.get("/api/v1/nodes").await, 200);
    assert_eq!(jane.get("/api/v1/nodes?watch=1&timeoutSeconds=1").await, 200);
    assert_eq!(jane.get("/api/v1/nodes/n").await, 403);
    assert_eq!(joe.get("/api/v1/nodes").await, 403);

    json_of(&api, "PATCH", &format!("{RBAC}/clusterroles/read"), &json!({"rules": []})).await;
    assert_eq!(jane.get("/api/v1/nodes").await, 403);
    json_of(&api, "DELETE", &format!("{RBAC}/clusterroles/read"), &Value::Null).await;
    let message = jane.refused("GET", "/api/v1/nodes").await;
    assert!(
        message.ends_with(r#"cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "read" not found"#),
        "{message}"
    );
    json_of(&api, "DELETE", &format!("{RBAC}/clusterrolebindings/devs"), &Value::Null).await;
    assert!(jane.refused("GET", "/api/v1/nodes").await.ends_with("at the cluster scope"));
}

#[tokio::test]
async fn a_binding_in_a_namespace_gives_nothing_elsewhere() {
    let api = begin();
    for name in ["a", "b"] {
        namespace(&api, name).await;
    }
    let jane = Asker::user(&api, "jane", &[]);
    let bindings = format!("{RBAC}/namespaces/a/rolebindings");
    create(&api, &bindings, binding("view", "view", &json!([{"kind": "User", "name": "jane"}]))).await;
    for (path, expected) in [
        ("/api/v1/namespaces/a/pods", 200),
        ("/api/v1/namespaces/a", 200),
        ("/api/v1/namespaces/a/secrets", 403),
        ("/api/v1/namespaces/b/pods", 403),
        ("/api/v1/pods", 403),
        ("/api/v1/nodes", 403),
    ] {
        assert_eq!(jane.get(path).await, expected, "{path}");
    }
}

#[tokio::test]
async fn an_eviction_takes_the_right_to_evictions_and_an_apply_that_creates_the_right_to_create() {
    let api = begin();
    namespace(&api, "a").await;
    let jane = Asker::user(&api, "jane", &[]);
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
    ]);
    cluster_role(&api, "some", rules).await;
    bind(&api, "some", "some", &json!([{"kind": "User", "name": "jane"}])).await;
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "a"}});
    let evicted = jane.ask("POST", "/api/v1/namespaces/a/pods/p/eviction", &eviction).await;
    assert_eq!(evicted.0, 404, "{}", evicted.1);
    let message = jane.refused("POST", "/api/v1/namespaces/a/pods").await;
    assert!(message.contains(r#"cannot create resource "pods" in"#), "{message}");

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}});
    let path = "/api/v1/namespaces/a/configmaps/cm?fieldManager=x";
    let (code, refused) = jane.ask("PATCH", path, &map).await;
    let expected = r#"configmaps "cm" is forbidden: User "jane" cannot create resource "configmaps" in API group "" in the namespace "a""#;
    assert_eq!((code, &refused["message"]), (403, &json!(expected)));
    assert_eq!(Asker::admin(&api).ask("PATCH", path, &map).await.0, 201);
    assert_eq!(jane.ask("PATCH", path, &map).await.0, 200);
}

#[tokio::test]
async fn names_limit_a_right_also_for_watches_of_one_object() {
    let api = begin();
    let jane = Asker::user(&api, "jane", &[]);
    let rules =
        json!([{"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["mine"], "verbs": ["*"]}]);
    cluster_role(&api, "mine", rules).await;
    bind(&api, "mine", "mine", &json!([{"kind": "User", "name": "jane"}])).await;
    for (path, expected) in [
        ("/api/v1/nodes/mine", 404),
        ("/api/v1/nodes/other", 403),
        ("/api/v1/nodes", 403),
        ("/api/v1/nodes?fieldSelector=metadata.name%3Dmine", 200),
        ("/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dmine", 200),
        ("/api/v1/nodes?fieldSelector=metadata.name%3Dother", 403),
    ] {
        assert_eq!(jane.get(path).await, expected, "{path}");
    }
}

#[tokio::test]
async fn a_role_with_the_label_adds_to_view_edit_and_admin() {
    use kube_sandbox::clock::Clock;
    use kube_sandbox::cluster::Cluster;
    use kube_sandbox::controllers::Controllers;
    use kube_sandbox::controllers::kubelet::Pace;

    let cluster = Arc::new(Cluster::new(Clock::start()));
    let api = Api::new(cluster.clone());
    let pace = Pace { start: Duration::ZERO, stop: Duration::ZERO };
    let _controllers = Controllers::start(&cluster, pace, Duration::ZERO);
    let mut grown = cluster.store.subscribe();
    let role = json!({"metadata": {"name": "see-maintenances",
        "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"], "verbs": ["get"]}]});
    create(&api, &format!("{RBAC}/clusterroles"), role.clone()).await;
    for name in ["view", "edit", "admin"] {
        let has_it = async {
            loop {
                let found = json_of(&api, "GET", &format!("{RBAC}/clusterroles/{name}"), &Value::Null).await;
                if found["rules"].as_array().unwrap().contains(&role["rules"][0]) {
                    return;
                }
                grown.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), has_it).await.expect(name);
    }
}

async fn review(asker: &Asker<'_>, kind: &str, spec: Value) -> Value {
    let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase());
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    asker.ask("POST", &path, &review).await.1
}

#[tokio::test]
async fn reviews_answer_by_the_same_roles_and_say_why() {
    let api = begin();
    namespace(&api, "a").await;
    let (jane, admin) = (Asker::user(&api, "jane", &["devs"]), Asker::admin(&api));
    let bindings = format!("{RBAC}/namespaces/a/rolebindings");
    create(&api, &bindings, binding("see", "view", &json!([{"kind": "Group", "name": "devs"}]))).await;
    let pods = |verb: &str| json!({"verb": verb, "group": "", "resource": "pods", "namespace": "a"});

    let may = review(&jane, "SelfSubjectAccessReview", json!({"resourceAttributes": pods("list")})).await;
    let reason = r#"RBAC: allowed by RoleBinding "see/a" of ClusterRole "view" to Group "devs""#;
    assert_eq!(may["status"], json!({"allowed": true, "reason": reason}));
    assert_eq!(
        may["spec"],
        json!({"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "a"}})
    );
    let may_not =
        review(&jane, "SelfSubjectAccessReview", json!({"resourceAttributes": pods("delete")})).await;
    assert_eq!(may_not["status"], json!({"allowed": false}));
    let path = json!({"nonResourceAttributes": {"path": "/api", "verb": "get"}});
    let path = review(&jane, "SelfSubjectAccessReview", path).await;
    let reason = r#"RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated""#;
    assert_eq!(path["status"], json!({"allowed": true, "reason": reason}));
    let all = review(&admin, "SelfSubjectAccessReview", json!({"resourceAttributes": pods("*")})).await;
    assert_eq!(all["status"], json!({"allowed": true}));

    let them = json!({"user": "joe", "groups": ["devs"], "resourceAttributes": pods("get")});
    assert_eq!(review(&admin, "SubjectAccessReview", them.clone()).await["status"]["allowed"], true);
    assert_eq!(review(&jane, "SubjectAccessReview", them).await["code"], 403);
}

#[tokio::test]
async fn reviews_that_ask_nothing_are_refused_in_the_words_of_a_real_server() {
    let api = begin();
    let admin = Asker::admin(&api);
    for (kind, spec, expected) in [
        (
            "SelfSubjectAccessReview",
            json!({}),
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "SelfSubjectAccessReview",
            json!({"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/", "verb": "get"}}),
            ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes",
        ),
        (
            "SubjectAccessReview",
            json!({"resourceAttributes": {"verb": "get", "resource": "pods"}}),
            ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified",
        ),
        ("SelfSubjectRulesReview", json!({}), "no namespace on request"),
    ] {
        assert_eq!(review(&admin, kind, spec).await["message"], expected);
    }
}

#[tokio::test]
async fn a_users_rules_are_those_of_their_roles() {
    let api = begin();
    namespace(&api, "a").await;
    let jane = Asker::user(&api, "jane", &[]);
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n"]});
    cluster_role(&api, "node-n", json!([rule])).await;
    bind(&api, "node-n", "node-n", &json!([{"kind": "User", "name": "jane"}])).await;
    bind(&api, "z-gone", "gone", &json!([{"kind": "User", "name": "jane"}])).await;
    let rules = review(&jane, "SelfSubjectRulesReview", json!({"namespace": "a"})).await;
    assert_eq!(rules["spec"], json!({}));
    let status = &rules["status"];
    assert_eq!(status["resourceRules"][0], rule);
    assert_eq!(status["resourceRules"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(status["nonResourceRules"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["incomplete"], false);
    assert_eq!(status["evaluationError"], r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#);
}
