//! Workloads that drains have left without a ready pod, as a watch reports them.

use crate::terminal::command_context::explain_command;
use crate::terminal::text::{Line, Style};

/// A workload is down for longer than a replacement usually takes, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageChange {
    /// The node that pods of it left.
    pub node: String,
    /// The workload with its namespace: `shop/deploy/web`.
    pub workload: String,
    /// Whether it is down.
    pub is_down: bool,
}

impl OutageChange {
    /// `shop/deploy/web is down: none of its pods is ready; ... shows why`.
    pub fn line(&self) -> Line {
        let Self { node, workload, is_down } = self;
        if !is_down {
            return Line::default().with(Style::Good, format!("{workload} is no longer down"));
        }
        let explain = explain_command([node.as_str()], "");
        let down = format!("{workload} is down: none of its pods is ready");
        Line::default().with(Style::Bad, down).and(format!("; `{explain}` shows why"))
    }
}
