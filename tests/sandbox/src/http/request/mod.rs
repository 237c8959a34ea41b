//! What a request asks for: its path, parameters, format and attributes.

pub(crate) mod attributes;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod delete_options;
pub(crate) mod negotiate;
pub(crate) mod options;
pub(crate) mod path;
