//! The terminal: styled text, tables, the one printer, job control and interrupts.

pub(crate) mod command_context;
pub(crate) mod interrupt;
pub(crate) mod job_control;
pub(crate) mod locale;
pub(crate) mod output;
pub(crate) mod table;
pub(crate) mod text;
