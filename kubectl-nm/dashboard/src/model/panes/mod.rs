//! What is shown beside or instead of the rows: the side pane, and what kubectl prints.

pub(crate) mod advice;
pub(crate) mod events;
pub(crate) mod maintenance_yaml;
pub(crate) mod output;
pub(crate) mod pane_lines;
