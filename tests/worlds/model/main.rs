//! Every interleaving of a small world: a model checker (`stateright`) drives the functions that the reconciler runs.
//!
//! The world is one node with two pods and one budget, two maintenances, and two reconcilers of which one leads. At any
//! moment a watch delivers late, a write or its answer is lost, a request arrives after its sender has crashed, a person
//! changes the node, creates and deletes maintenances, and changes their hooks and what they ask of neighbours. [`nm_shared::decide::decide`] makes each decision, and
//! [`nm_shared::decide::steps`] orders its writes. The model interrupts them everywhere.
//!
//! In every reachable state the invariants of [`nm_tests::invariants`] are checked. Liveness is checked from every reachable
//! state too: if no more harm is done, everything settles, every maintenance ends as its object says, and once all of them
//! are deleted the node is as it was.
//!
//! `NM_MODEL=PERSON,FAULTS` searches with more harm than the short form. A violation prints its history;
//! `NM_MODEL_HISTORY='…'` replays one.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod actions;
mod api_server;
mod check;
mod histories;
mod objects;
mod replica;
mod state;
mod waits;
