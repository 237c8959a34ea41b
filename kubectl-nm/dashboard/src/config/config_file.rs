//! The configuration of the dashboard: `~/.config/kubectl-nm/config.toml`.
//!
//! It has the theme, the columns of the lists, and keys. A mistake in it is reported with its place, and never stops the
//! dashboard: that setting has its default.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use nm_core::terminal::docs_url::docs_url;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use toml_edit::{Document, Item, TableLike, TomlError, Value};

use crate::config::action_table::{ACTIONS, Action};
use crate::config::appearance::ThemeName;
use crate::config::columns::{Columns, ListName};
use crate::config::key_map::{FIXED, KeyMap};
use crate::config::key_name::{is_key_name, sent_instead};

/// What the configuration sets; everything else has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The theme; `None` if the file does not set one.
    pub theme: Option<ThemeName>,
    /// Whether to draw with ASCII characters only; `None` to decide by the locale.
    pub ascii: Option<bool>,
    pub(crate) columns: Columns,
    /// The keys of the actions.
    pub keys: KeyMap,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Invalid { path: PathBuf, line: usize, problem: String },
}

/// A word, and where in the text it is.
type PlacedWord = (String, Option<Range<usize>>);

/// Something that is wrong, and where in the text.
#[derive(Debug, PartialEq, Eq)]
struct Problem(Option<Range<usize>>, String);

impl Problem {
    fn of_syntax(error: &TomlError) -> Self {
        let problem = error.message().trim().replace('\n', ", ");
        Self(error.span(), format!("{problem}: correct the line, the whole file is ignored"))
    }

    fn in_file(self, path: &Path, text: &str) -> ConfigError {
        let Self(at, problem) = self;
        let before = at.and_then(|at| text.get(..at.start)).unwrap_or_default();
        ConfigError::Invalid { path: path.to_owned(), line: before.matches('\n').count() + 1, problem }
    }
}

/// The path of the configuration; none without a home. `variable` reads the environment.
fn path(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // A relative path in the variable is to be ignored, by the XDG specification.
    let base = variable("XDG_CONFIG_HOME").filter(|base| base.is_absolute());
    let home = || ["HOME", "USERPROFILE"].into_iter().filter_map(&variable).find(|home| home.is_absolute());
    let base = base.or_else(|| Some(home()?.join(".config")))?;
    Some(base.join("kubectl-nm").join("config.toml"))
}

impl Config {
    /// The configuration of this process. Its mistakes are printed as warnings, and returned in a sentence for the dashboard
    /// that opens afterwards.
    pub fn load(out: &mut Output) -> (Self, Option<String>) {
        let (config, mistakes) = path(|name| std::env::var_os(name).map(PathBuf::from))
            .map_or_else(Default::default, |path| Self::read(&path));
        (config, report(&mistakes, out))
    }

    /// Reads the file, and what is wrong with it. A setting with a mistake has its default. A file that does not exist sets
    /// nothing.
    pub fn read(path: &Path) -> (Self, Vec<ConfigError>) {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Self::default_with(Vec::new());
            }
            Err(source) => {
                return Self::default_with(vec![ConfigError::Unreadable { path: path.to_owned(), source }]);
            }
        };
        let (config, problems) = Self::parse(&text);
        (config, problems.into_iter().map(|problem| problem.in_file(path, &text)).collect())
    }

    fn default_with<T>(problems: Vec<T>) -> (Self, Vec<T>) {
        (Self::default(), problems)
    }

    fn parse(text: &str) -> (Self, Vec<Problem>) {
        let document = match Document::parse(text) {
            Ok(document) => document,
            Err(error) => return Self::default_with(vec![Problem::of_syntax(&error)]),
        };
        let (mut config, mut problems) = Self::default_with(Vec::new());
        for (name, item) in document.as_table() {
            let at = key_span(document.as_table(), name).or_else(|| item.span());
            let read = match name {
                "theme" => theme(item).map(|theme| config.theme = Some(theme)),
                "ascii" => item.as_bool().map(|ascii| config.ascii = Some(ascii)).ok_or_else(|| {
                    Problem(item.span().or(at), String::from("ascii has to be true or false"))
                }),
                "columns" => section(item, name, at)
                    .map(|section| columns(&mut config.columns, section, &mut problems)),
                "keys" => section(item, name, at.clone())
                    .and_then(|section| keys(section, at, &mut problems))
                    .map(|keys| config.keys = keys),
                other => Err(Problem(at, unknown("key", other, "theme, ascii, columns, keys"))),
            };
            problems.extend(read.err());
        }
        (config, problems)
    }
}

fn report(mistakes: &[ConfigError], out: &mut Output) -> Option<String> {
    let (first, others) = mistakes.split_first()?;
    for mistake in mistakes {
        out.message(&Line::new(format!("warning: {mistake}")));
    }
    let page = docs_url("reference/config.md");
    out.hint(&format!("defaults are used instead; {page} has the whole configuration"));
    let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
    Some(format!("{first}{more}; defaults are used instead"))
}

fn unknown(what: &str, name: &str, known: &str) -> String {
    format!("unknown {what} \"{name}\": remove it, or use one of {known}")
}

fn key_span(table: &dyn TableLike, name: &str) -> Option<Range<usize>> {
    table.get_key_value(name)?.0.span()
}

fn section<'a>(item: &'a Item, name: &str, at: Option<Range<usize>>) -> Result<&'a dyn TableLike, Problem> {
    item.as_table_like().ok_or_else(|| Problem(at, format!("{name} has to be a section, [{name}]")))
}

fn theme(item: &Item) -> Result<ThemeName, Problem> {
    let name = item.as_str().unwrap_or_default();
    ThemeName::from_str(name, true).map_err(|_| {
        let known = ThemeName::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let known: Vec<String> = known.map(|theme| theme.get_name().to_owned()).collect();
        Problem(item.span(), unknown("theme", name, &known.join(", ")))
    })
}

fn columns(columns: &mut Columns, section: &dyn TableLike, problems: &mut Vec<Problem>) {
    for (name, item) in section.iter() {
        match columns_of(section, name, item) {
            Ok((list, chosen)) => columns.choose(list, chosen),
            Err(problem) => problems.push(problem),
        }
    }
}

fn columns_of(
    section: &dyn TableLike,
    name: &str,
    item: &Item,
) -> Result<(ListName, Vec<&'static str>), Problem> {
    let at = key_span(section, name).or_else(|| item.span());
    let Some(list) = ListName::ALL.into_iter().find(|list| list.name() == name) else {
        let lists: Vec<&str> = ListName::ALL.iter().map(|list| list.name()).collect();
        return Err(Problem(at, unknown("list", name, &lists.join(", "))));
    };
    let mut chosen = Vec::new();
    for (word, span) in words(item, &format!("columns.{name}"))? {
        let Some(column) = list.column(&word) else {
            let known: Vec<&str> = list.columns().iter().map(|column| column.name).collect();
            return Err(Problem(span, unknown("column", &word, &known.join(", "))));
        };
        if !chosen.contains(&column) {
            chosen.push(column);
        }
    }
    if chosen.is_empty() {
        return Err(Problem(at, format!("columns.{name} has no column: name one, or remove the line")));
    }
    Ok((list, chosen))
}

/// The keys of the section, which begins `at`. Actions with a mistake keep their keys; if there would be no way to get
/// help or to go back, all do.
fn keys(
    section: &dyn TableLike,
    at: Option<Range<usize>>,
    problems: &mut Vec<Problem>,
) -> Result<KeyMap, Problem> {
    let mut map = KeyMap::default();
    let mut taken: Vec<(String, Action)> = Vec::new();
    for (name, item) in section.iter() {
        match keys_of(section, name, item, &taken) {
            Ok((action, keys)) => {
                taken.extend(keys.iter().map(|key| (key.clone(), action)));
                map.assign(action, keys);
            }
            Err(problem) => problems.push(problem),
        }
    }
    for needed in [Action::Help, Action::Back] {
        if map.keys(needed).is_empty() {
            let name = needed.entry().name;
            return Err(Problem(at, format!("{name} has no key any more: give it one in [keys]")));
        }
    }
    Ok(map)
}

fn keys_of(
    section: &dyn TableLike,
    name: &str,
    item: &Item,
    taken: &[(String, Action)],
) -> Result<(Action, Vec<String>), Problem> {
    let at = key_span(section, name).or_else(|| item.span());
    let Some(entry) = ACTIONS.iter().find(|entry| entry.name == name) else {
        let actions: Vec<&str> = ACTIONS.iter().map(|entry| entry.name).collect();
        return Err(Problem(at, unknown("action", name, &actions.join(", "))));
    };
    let mut keys = Vec::new();
    for (word, span) in words(item, &format!("keys.{name}"))? {
        if !is_key_name(&word) {
            let words =
                format!("\"{word}\" is not a key: use a character, or a name such as Space, F5 or Ctrl-G");
            return Err(Problem(span, words));
        }
        if let Some(sent) = sent_instead(&word) {
            return Err(Problem(span, format!("a terminal sends {sent} for {word}: use another key")));
        }
        if let Some((key, owner)) = FIXED.iter().find(|(key, owner)| *key == word && *owner != entry.action) {
            let words = format!("{key} always means {}: use another key", owner.entry().name);
            return Err(Problem(span, words));
        }
        if let Some((_, other)) = taken.iter().find(|(key, _)| *key == word) {
            let words = format!("the key {word} is assigned to {} already: use another", other.entry().name);
            return Err(Problem(span, words));
        }
        keys.push(word);
    }
    Ok((entry.action, keys))
}

/// The words of a list, or the only word, with their places.
fn words(item: &Item, name: &str) -> Result<Vec<PlacedWord>, Problem> {
    let wrong = |span| Problem(span, format!("{name} has to be a list of words in quotes"));
    if let Some(word) = item.as_str() {
        return Ok(vec![(word.to_owned(), item.span())]);
    }
    let list = item.as_array().ok_or_else(|| wrong(item.span()))?;
    let word = |value: &Value| {
        let word = value.as_str().ok_or_else(|| wrong(value.span()))?;
        Ok((word.to_owned(), value.span()))
    };
    list.iter().map(word).collect()
}

#[cfg(test)]
#[path = "config_file_tests.rs"]
mod tests;
