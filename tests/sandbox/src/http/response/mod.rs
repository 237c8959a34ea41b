//! Responses: objects, tables, lists, errors and continue tokens.

pub(crate) mod answer;
pub(crate) mod continue_token;
pub(crate) mod representation;
pub(crate) mod table;
