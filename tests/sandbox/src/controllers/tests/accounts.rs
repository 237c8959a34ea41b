//! Service accounts that come by themselves.

use crate::pod;
use crate::registry::DeleteOptions;
use crate::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use crate::store::Key;

use crate::controllers::test_bed::Bed;

#[tokio::test(start_paused = true)]
async fn every_namespace_has_a_default_service_account_for_as_long_as_it_lives() {
    let bed = Bed::new(1);
    let key = Key::new("ns", "default");
    bed.until("there is one", |state| state.get(&SERVICE_ACCOUNTS, &key).is_some()).await;
    let first = bed.get(&SERVICE_ACCOUNTS, &key).unwrap();
    bed.delete(&SERVICE_ACCOUNTS, &key, &DeleteOptions::default());
    bed.until("there is another", |state| {
        state.get(&SERVICE_ACCOUNTS, &key).is_some_and(|account| pod::uid(&account) != pod::uid(&first))
    })
    .await;
    bed.terminate_namespace("ns");
    bed.until("both are gone", |state| {
        state.get(&NAMESPACES, &Key::cluster("ns")).is_none() && state.get(&SERVICE_ACCOUNTS, &key).is_none()
    })
    .await;
}
