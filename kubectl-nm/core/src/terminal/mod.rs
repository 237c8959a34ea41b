//! The terminal: styled text, tables, the only module that prints, commands to paste, signals.

pub mod command_context;
pub mod docs_url;
pub mod output;
pub mod shortened;
pub mod signals;
pub mod table;
pub mod text;
