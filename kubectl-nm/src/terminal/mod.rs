//! The terminal: styled text, tables, the only module that prints, commands to paste, signals.

pub(crate) mod command_context;
pub(crate) mod docs_url;
pub(crate) mod output;
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod text;
