//! What users configure: the theme, the columns and the keys of the actions, by the file and by flags.

pub(crate) mod action_table;
pub(crate) mod appearance;
pub(crate) mod columns;
pub(crate) mod config_file;
pub(crate) mod key_map;
pub(crate) mod key_name;
