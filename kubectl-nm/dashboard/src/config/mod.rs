//! What users configure: the theme, the columns and the keys of the actions, by the file, flags and dialogs.

pub(crate) mod action_table;
pub(crate) mod appearance;
pub(crate) mod columns;
pub(crate) mod config_file;
pub(crate) mod key_map;
pub(crate) mod key_name;
pub(crate) mod remembered_choice;
