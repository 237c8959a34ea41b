//! Decoding of bodies: JSON, protobuf and patches, checked against the fields of their kinds.

pub(crate) mod json_syntax;
pub(crate) mod known_fields;
pub(crate) mod object;
pub(crate) mod patch_body;
pub(crate) mod protobuf;
