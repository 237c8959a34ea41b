//! Promises that the controllers keep together, on a cluster without HTTP.

mod budgets;
mod nodes;
mod removal;
mod workloads;

use crate::workload::{App, Kind};

fn web() -> App {
    App::new(Kind::Deployment, "ns", "web")
}
