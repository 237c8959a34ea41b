//! The hook of a maintenance, as `NAME=OWNER`.

use nm_shared::Hook;
use nm_shared::cluster::selector;

/// Parses a hook with its owner.
///
/// # Errors
///
/// If its name is none of a label, or if it has no owner.
pub fn parse_hook(text: &str) -> Result<Hook, String> {
    let (name, owner) = text.split_once('=').unwrap_or((text, ""));
    if name.is_empty() || !selector::is_value(name) {
        return Err(String::from(
            "the name of a hook has at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit",
        ));
    }
    if owner.trim().is_empty() {
        return Err(format!("the hook has no owner, who removes it: {name}=OWNER"));
    }
    Ok(Hook { name: name.to_owned(), owner: owner.to_owned() })
}
