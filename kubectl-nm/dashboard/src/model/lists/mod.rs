//! Lists of rows: sorted, filtered, and with a selected row.

pub(crate) mod filter;
pub(crate) mod listing;
