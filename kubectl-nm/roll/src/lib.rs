//! Rolls: one node after another is drained, acted on and returned to service.
//!
//! [`waves`] orders the nodes, and a maintenance is created for each, suspended. [`record`] is the state of a roll in these
//! objects. [`decide`] says what happens next, by what is [`observed`], by the [`gates`] of each node and by the
//! [`departures`] of nodes, of which some return after an [`absence`], and [`runner`] has it carried out: with [`apply`], which makes
//! the requests and [`backoff`], which delays those that failed, [`actions`], which run a [`command`] or a [`job`] for each node, and
//! [`health`] for its gates. [`halted`] says what to do about a roll that has halted, [`unfinished`] what it leaves, [`stopped_rolls`]
//! what it loses with nodes that somebody stops, and [`turn`] what a node waits for. [`store`] changes a roll from outside. A Job may run
//! a roll [`in_cluster`], and a [`viewer`] shows it. [`report`] and the dashboard show a [`view`] of it.

pub mod absence;
mod action_gates;
mod action_record;
mod actions;
mod apply;
mod backoff;
pub mod by_now;
pub mod command;
pub mod decide;
mod departures;
pub mod error;
pub mod finisher;
mod gates;
mod halt_event;
pub mod halted;
pub mod health;
mod health_record;
mod health_round;
pub mod in_cluster;
pub mod job;
pub mod observed;
pub mod record;
pub mod report;
pub mod runner;
pub mod settings;
pub mod skip;
pub mod stopped_rolls;
pub mod store;
mod totals;
pub mod turn;
pub mod unfinished;
pub mod view;
pub mod viewer;
pub mod waves;
mod working_time;
