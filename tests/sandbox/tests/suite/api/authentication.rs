//! Who asks: tokens of users and of service accounts, and asking as another.

use std::sync::Arc;
use std::time::Duration;

use crate::admin_client::{begin, json_of};
use crate::user_client::{Asker, bind, cluster_role, create, namespace};
use kube_sandbox::http::Api;
use serde_json::{Value, json};

/// A token of a new service account.
async fn account(api: &Arc<Api>, namespace: &str, name: &str, spec: Value) -> Value {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    create(api, &accounts, json!({"metadata": {"name": name}})).await;
    token(api, namespace, name, spec).await
}

async fn token(api: &Arc<Api>, namespace: &str, name: &str, spec: Value) -> Value {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    json_of(api, "POST", &path, &json!({"spec": spec})).await
}

async fn who_am_i(asker: &Asker<'_>) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (code, answer) =
        asker.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["userInfo"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_service_account_is_known_by_its_token_until_that_expires() {
    let api = begin();
    namespace(&api, "a").await;
    let request = account(&api, "a", "robot", json!({"expirationSeconds": 600})).await;
    assert_eq!(
        request["spec"],
        json!({"audiences": ["https://kubernetes.default.svc"],
        "expirationSeconds": 600, "boundObjectRef": null})
    );
    let robot = Asker::with_token(&api, request["status"]["token"].as_str().unwrap());
    let known = who_am_i(&robot).await;
    assert_eq!(known["username"], "system:serviceaccount:a:robot");
    assert_eq!(
        known["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"])
    );
    assert!(known["uid"].is_string());
    let id = &known["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(id.as_str().unwrap().starts_with("JTI="), "{known}");

    bind(&api, "robots", "view", &json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "a"}]))
        .await;
    assert_eq!(robot.get("/api/v1/pods").await, 200);
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(robot.get("/api/v1/pods").await, 401);
}

#[tokio::test]
async fn a_token_ends_with_its_account_even_if_another_of_its_name_follows() {
    let api = begin();
    namespace(&api, "a").await;
    let request = account(&api, "a", "robot", json!({})).await;
    let robot = Asker::with_token(&api, request["status"]["token"].as_str().unwrap());
    assert_eq!(robot.get("/api").await, 200);
    json_of(&api, "DELETE", "/api/v1/namespaces/a/serviceaccounts/robot", &Value::Null).await;
    assert_eq!(robot.get("/api").await, 401);
    let again = account(&api, "a", "robot", json!({})).await;
    assert_eq!(robot.get("/api").await, 401);
    let robot = Asker::with_token(&api, again["status"]["token"].as_str().unwrap());
    assert_eq!(robot.get("/api").await, 200);
}

#[tokio::test]
async fn a_token_is_refused_for_an_instant_a_stranger_and_a_pod() {
    let api = begin();
    namespace(&api, "a").await;
    let short = account(&api, "a", "robot", json!({"expirationSeconds": 60})).await;
    let expected = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: \
                    may not specify a duration less than 10 minutes";
    assert_eq!((&short["code"], &short["message"]), (&json!(422), &json!(expected)));
    let missing = token(&api, "a", "missing", json!({})).await;
    assert_eq!(missing["message"], "serviceaccounts \"missing\" not found");
    let bound = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    assert_eq!(token(&api, "a", "robot", bound).await["code"], 400);
    let path = "/api/v1/namespaces/a/serviceaccounts/robot/token";
    assert_eq!(json_of(&api, "GET", path, &Value::Null).await["code"], 405);
    let others = token(&api, "a", "robot", json!({"audiences": ["vault"]})).await;
    let others = Asker::with_token(&api, others["status"]["token"].as_str().unwrap());
    assert_eq!(others.get("/api").await, 401, "it is not for this server");
}

#[tokio::test]
async fn an_administrator_asks_as_anybody() {
    let api = begin();
    let as_jane = Asker::admin(&api)
        .and("impersonate-user", "jane")
        .and("impersonate-group", "g")
        .and("impersonate-uid", "u1")
        .and("impersonate-extra-scopes", "a")
        .and("impersonate-extra-scopes", "b")
        .and("impersonate-extra-acme.com%2fproject", "some");
    assert_eq!(
        who_am_i(&as_jane).await,
        json!({"username": "jane", "uid": "u1", "groups": ["g", "system:authenticated"],
            "extra": {"acme.com/project": ["some"], "scopes": ["a", "b"]}})
    );
    assert_eq!(as_jane.get("/api/v1/nodes").await, 403);
    let as_robot = Asker::admin(&api).and("impersonate-user", "system:serviceaccount:a:robot");
    assert_eq!(
        who_am_i(&as_robot).await["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"])
    );
    let half = Asker::admin(&api).and("impersonate-group", "g");
    let (code, answer) = half.ask("GET", "/api/v1/nodes", &Value::Null).await;
    let expected = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, \
                    Extra:map[string][]string(nil)} without impersonating a user name";
    assert_eq!((code, &answer["message"]), (400, &json!(expected)));
}

#[tokio::test]
async fn asking_as_another_takes_the_right_to_each_part_of_who_that_is() {
    let api = begin();
    let rules = json!([{"apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate"]}]);
    cluster_role(&api, "as-jane", rules).await;
    bind(&api, "as-jane", "as-jane", &json!([{"kind": "User", "name": "joe"}])).await;
    let as_jane = || Asker::user(&api, "joe", &[]).and("impersonate-user", "jane");
    assert!(as_jane().refused("GET", "/api/v1/nodes").await.contains(r#"User "jane" cannot list"#));
    for (header, value, expected) in [
        (
            "impersonate-group",
            "g",
            r#"groups "g" is forbidden: User "joe" cannot impersonate resource "groups" in API group "" at the cluster scope"#,
        ),
        (
            "impersonate-uid",
            "u",
            r#"uids.authentication.k8s.io "u" is forbidden: User "joe" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
        (
            "impersonate-extra-scopes",
            "s",
            r#"userextras.authentication.k8s.io "s" is forbidden: User "joe" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
    ] {
        assert_eq!(as_jane().and(header, value).refused("GET", "/api/v1/nodes").await, expected);
    }
    let as_account = Asker::user(&api, "joe", &[]).and("impersonate-user", "system:serviceaccount:a:robot");
    assert_eq!(
        as_account.refused("GET", "/api/v1/nodes").await,
        r#"serviceaccounts "robot" is forbidden: User "joe" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "a""#
    );
}

#[tokio::test]
async fn a_token_review_says_whose_a_token_is() {
    let api = begin();
    let admin = Asker::admin(&api);
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let of = |token: &str| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let jane = api.add_user("jane", &["devs"]);
    let known = admin.ask("POST", path, &of(&jane)).await.1;
    assert_eq!(
        known["status"],
        json!({"authenticated": true, "audiences": ["https://kubernetes.default.svc"],
            "user": {"username": "jane", "groups": ["devs", "system:authenticated"]}})
    );
    let unknown = admin.ask("POST", path, &of("bogus")).await.1;
    assert_eq!(unknown["status"], json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(admin.ask("POST", path, &of("")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_somebody_unknown_is_on_record_with_what_it_was_about() {
    let api = begin();
    let token = format!("Bearer {}", api.admin_token());
    for (header, value, code) in [("authorization", "Bearer x", 401), ("impersonate-group", "g", 400)] {
        api.requests().clear();
        let mut request = http::Request::builder().uri("/api/v1/namespaces/a/pods/p/log");
        if header != "authorization" {
            request = request.header("authorization", &token);
        }
        let request = request.header(header, value).body(bytes::Bytes::new()).unwrap();
        let _ = api.answer(request).await;
        let [entry] = &api.requests().all()[..] else { panic!("one request") };
        let about = (entry.verb, &*entry.resource, &*entry.subresource, &*entry.namespace, &*entry.name);
        assert_eq!(about, ("get", "pods", "log", "a", "p"), "{header}");
        assert_eq!((entry.code, &*entry.user), (code, ""), "{header}");
    }
}
