//! Rolls: one node after another is drained, acted on and returned to service.
//!
//! [`waves`] orders the nodes, and a maintenance is created for each, suspended. [`record`] is the state of a roll in these
//! objects. [`decide`] says what happens next, by what is [`observed`], by the [`gates`] of each node and by the
//! [`departures`] of nodes, of which some return after an [`absence`], and [`runner`]
//! has it carried out: with [`apply`], which makes the requests and [`backoff`], which delays those that failed, [`actions`], which run a [`command`] or a [`job`] for each node, and [`health`] for its gates.
//! [`store`] changes a roll from outside. [`report`] and the dashboard show a [`view`] of it.

pub(crate) mod absence;
mod actions;
mod apply;
mod backoff;
pub(crate) mod command;
pub(crate) mod decide;
mod departures;
mod gates;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod observed;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod runner;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod view;
pub(crate) mod waves;
pub(crate) mod window;
