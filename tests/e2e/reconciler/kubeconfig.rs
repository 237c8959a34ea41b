//! The reconciler connects with kubeconfigs that kubectl accepts. The plugin, which shares the code, has a table of them.

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained};
use nm_tests::programs::program;
use nm_tests::reconciler::Reconciler;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_with_a_line_break_and_the_certificate_of_the_server_itself_are_enough() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "it needs the certificate of the API server").await
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let given = std::fs::read_to_string(cluster.reconciler_kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&given).unwrap();
    let user = &mut kubeconfig["users"][0]["user"];
    std::fs::write(folder.path().join("token"), format!("{}\n", user["token"].as_str().unwrap())).unwrap();
    *user = json!({"tokenFile": "token"});
    let api_server = kubeconfig["clusters"][0]["cluster"].as_object_mut().unwrap();
    api_server.remove("certificate-authority-data").unwrap();
    std::fs::write(folder.path().join("leaf.crt"), cluster.sandbox().unwrap().server_certificate()).unwrap();
    api_server.insert("certificate-authority".to_owned(), json!("leaf.crt"));
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let _reconciler = Reconciler::start_build(&file, &program("nm-reconciler"), &[]);
    let node = &cluster.nodes().await[0];
    start(&cluster, "e2e-kubeconfig", node).await;
    until_drained(&cluster, "e2e-kubeconfig").await;
    stop(&cluster, "e2e-kubeconfig").await;
}
