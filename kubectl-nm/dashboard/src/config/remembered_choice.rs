//! What is chosen in the dashboard and remembered in its configuration.
//!
//! Everything else in the file stays as it is, comments included.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use toml_edit::{Array, Document, DocumentMut, Item, RawString, TableLike, Value, value};

use crate::config::appearance::ThemeName;
use crate::config::columns::ListName;
use crate::config::config_file::{ConfigError, Problem, own_path, theme_name};

/// A choice to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Theme(ThemeName),
    Columns(ListName, Vec<&'static str>),
}

/// Writes a choice into the configuration of this process. Returns the path of the file.
pub(crate) fn remember_choice(choice: &Choice) -> Result<PathBuf, ConfigError> {
    let path = own_path().ok_or(ConfigError::NoHome)?;
    remember(&path, choice).map(|()| path)
}

/// Writes a choice into the file, and leaves everything else in it as it is. The file is replaced as a whole.
fn remember(path: &Path, choice: &Choice) -> Result<(), ConfigError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(ConfigError::Unreadable { path: path.to_owned(), source }),
    };
    let text = with_choice(&text, choice).map_err(|problem| problem.in_file(path, &text))?;
    write(path, &text).map_err(|source| ConfigError::Unwritable { path: path.to_owned(), source })
}

fn with_choice(text: &str, choice: &Choice) -> Result<String, Problem> {
    // A document that can be changed has no places.
    Document::parse(text).map_err(|error| Problem::of_syntax(&error))?;
    let mut document: DocumentMut = text.parse().map_err(|error| Problem::of_syntax(&error))?;
    match choice {
        Choice::Theme(theme) => {
            set(document.as_table_mut(), "theme", theme_name(*theme).unwrap_or_default().into())?;
        }
        Choice::Columns(list, names) => {
            let item = document.entry("columns").or_insert_with(toml_edit::table);
            let Some(section) = item.as_table_like_mut() else {
                return Err(Problem(None, String::from("columns has to be a section, [columns]")));
            };
            set(section, list.name(), names.iter().copied().collect::<Array>().into())?;
        }
    }
    let changed = document.to_string();
    // The library writes all ends of lines as a line feed.
    Ok(if text.contains("\r\n") { changed.replace("\r\n", "\n").replace('\n', "\r\n") } else { changed })
}

/// Sets a value, and keeps the comments of the one before: that behind it stays there, and those inside of a list move above it.
fn set(section: &mut dyn TableLike, name: &str, mut new: Value) -> Result<(), Problem> {
    let Some(item) = section.get_mut(name) else {
        section.insert(name, value(new));
        return Ok(());
    };
    let Some(old) = item.as_value() else {
        return Err(Problem(None, format!("{name} has to be a value, and is a section")));
    };
    let inside = old.as_array().map(comments).unwrap_or_default();
    *new.decor_mut() = old.decor().clone();
    *item = Item::Value(new);
    if let Some(mut key) = section.key_mut(name).filter(|_| !inside.is_empty()) {
        let decor = key.leaf_decor_mut();
        let before = decor.prefix().and_then(RawString::as_str).unwrap_or_default();
        decor.set_prefix(format!("{before}{}\n", inside.join("\n")));
    }
    Ok(())
}

/// The comments inside of a list.
fn comments(list: &Array) -> Vec<String> {
    let text = |part: Option<&RawString>| part.and_then(RawString::as_str).unwrap_or_default().to_owned();
    let around = |value: &Value| [text(value.decor().prefix()), text(value.decor().suffix())];
    let parts = list.iter().flat_map(around).chain([text(Some(list.trailing()))]);
    let lines = |part: String| part.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    parts.flat_map(lines).filter(|line| line.starts_with('#')).collect()
}

/// Where a path leads after all links, also if there is no such file.
fn followed(path: &Path) -> io::Result<PathBuf> {
    const MAX_LINKS: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            // A relative one begins where the link is.
            Ok(next) => target = target.parent().unwrap_or(Path::new(".")).join(next),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {
                return Ok(target);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Writes a file so that no reader sees half of it. A link to the file stays a link.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let target = followed(path)?;
    let folder = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    if let Ok(metadata) = fs::metadata(&target) {
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&target).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
#[path = "remembered_choice_tests.rs"]
mod tests;
