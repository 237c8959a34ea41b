//! Nothing is lost in random harm: replicas are killed, frozen and terminated, their connections are disturbed, the API
//! server is paused, people change nodes, budgets and maintenances. Then the harm stops, everything has to settle, and the
//! invariants of [`nm_tests::invariants`] are checked over all that happened.
//!
//! It runs on the cluster of `NM_E2E_KUBECONFIG`, or on a sandbox in a process of its own. `NM_CHAOS_SECONDS` says for how
//! long harm is done. The plan of it depends on `NM_CHAOS_SEED` alone; what comes of it depends on the cluster, too.
//!
//! In a soak (`NM_CHAOS_SOAK`), the replicas stay: none is killed, terminated or frozen, the other acts are done more
//! slowly, and what each replica holds is measured again and again.
//!
//! On a cluster of your own, `NM_CHAOS_PAUSE` is a command that pauses the API server for a moment, such as
//! `kill -STOP 123; sleep 2; kill -CONT 123`, and `NM_CHAOS_AUDIT` the audit log of the API server, in which the requests
//! of the replicas are checked a second time. If the audit log is about one user only, `NM_CHAOS_IMPERSONATOR` is a
//! kubeconfig of that user, who must be allowed to impersonate. `NM_CHAOS_REBOOT` is a command that takes the machine of the node
//! `{}` away for a while, and returns when it is back.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::manual_assert)]

mod history;
mod network;
mod node_story;
mod people;
mod plan;
mod replicas;
mod report;
mod requests;
mod run;
mod settings;
mod settled;
mod soak;

use settings::Settings;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_in_random_harm_and_everything_settles_after_it() {
    run::run(&Settings::read()).await;
}
