//! Promises that the controllers keep together, on a cluster without HTTP.

mod accounts;
mod budgets;
mod events;
mod nodes;
mod reboots;
mod removal;
mod rollouts;
mod scheduling;
mod tolerations;
mod volumes;
mod workloads;
