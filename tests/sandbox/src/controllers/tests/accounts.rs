//! Service accounts that come by themselves.

use crate::cluster::catalog::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use crate::cluster::registry::DeleteOptions;
use crate::cluster::store::Key;
use crate::model::pod;

use crate::controllers::engine::test_cluster::TestCluster;

#[tokio::test(start_paused = true)]
async fn every_namespace_has_a_default_service_account_for_as_long_as_it_lives() {
    let test = TestCluster::new(1);
    let key = Key::new("ns", "default");
    test.until("there is one", |state| state.get(&SERVICE_ACCOUNTS, &key).is_some()).await;
    let first = test.get(&SERVICE_ACCOUNTS, &key).unwrap();
    test.delete(&SERVICE_ACCOUNTS, &key, &DeleteOptions::default());
    test.until("there is another", |state| {
        state.get(&SERVICE_ACCOUNTS, &key).is_some_and(|account| pod::uid(&account) != pod::uid(&first))
    })
    .await;
    test.terminate_namespace("ns");
    test.until("both are gone", |state| {
        state.get(&NAMESPACES, &Key::cluster("ns")).is_none() && state.get(&SERVICE_ACCOUNTS, &key).is_none()
    })
    .await;
}
