//! The commands in `docs/reference/kubectl-nm.md`, made from their help: what each does, examples, and tables of its flags. Flags that
//! several commands have under a heading of their own are described once.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The heading of what every help text has.
const OWN: [&str; 2] = ["Arguments", "Options"];

/// From so many blanks on, a line of help continues the description of a flag.
const DESCRIPTION_INDENT: usize = 10;

#[derive(Debug, Clone, Default, PartialEq)]
struct Flag {
    names: String,
    lines: Vec<String>,
}

/// A command as its help describes it.
#[derive(Debug, Default)]
pub(crate) struct Command {
    name: String,
    about: String,
    examples: Vec<String>,
    usage: Vec<String>,
    /// The flags by the headings above them, in the order of the help.
    groups: Vec<(String, Vec<Flag>)>,
    /// What follows the flags, such as exit codes.
    notes: String,
}

impl Command {
    /// The command of this name, such as `roll status`.
    pub(crate) fn of(name: &str, help: &str) -> Self {
        let mut command = Self { name: name.to_owned(), ..Self::default() };
        let mut heading = String::new();
        for line in help.lines() {
            let indent = line.len() - line.trim_start().len();
            if let Some(usage) = line.strip_prefix("Usage: ") {
                "Usage".clone_into(&mut heading);
                command.usage.push(usage.to_owned());
            } else if line.is_empty() {
                command.blank(&heading);
            } else if indent > 0 {
                command.indented(&heading, line, indent);
            } else if let Some(found) = line.strip_suffix(':') {
                found.clone_into(&mut heading);
                command.groups.push((heading.clone(), Vec::new()));
            } else if !line.starts_with("Use `kubectl nm options`") {
                let to = if command.usage.is_empty() { &mut command.about } else { &mut command.notes };
                let _ = write!(to, "{line} ");
            }
        }
        let flags = command.groups.iter_mut().flat_map(|(_, flags)| flags);
        flags.for_each(|flag| drop(flag.lines.pop_if(|line| line.is_empty())));
        command.groups.retain(|(heading, flags)| heading != "Commands" && !flags.is_empty());
        command
    }

    fn blank(&mut self, heading: &str) {
        if !self.notes.is_empty() {
            self.notes.truncate(self.notes.trim_end().len());
            self.notes.push_str("\n\n");
            return;
        }
        match heading {
            "Examples" => self.examples.push(String::new()),
            "Usage" | "" => {}
            _ => {
                if let Some(flag) = self.groups.last_mut().and_then(|(_, flags)| flags.last_mut()) {
                    flag.lines.push(String::new());
                }
            }
        }
    }

    fn indented(&mut self, heading: &str, line: &str, indent: usize) {
        match heading {
            "Examples" => self.examples.push(line.strip_prefix("  ").unwrap_or(line).to_owned()),
            "Usage" => self.usage.push(line.trim_start().to_owned()),
            _ => {
                let Some((_, flags)) = self.groups.last_mut() else { return };
                if indent >= DESCRIPTION_INDENT {
                    flags
                        .last_mut()
                        .expect("a description follows its flag")
                        .lines
                        .push(line.trim().to_owned());
                    return;
                }
                let (names, text) = line.trim_start().split_once("  ").unwrap_or((line.trim_start(), ""));
                flags.push(Flag { names: names.to_owned(), lines: vec![text.trim().to_owned()] });
            }
        }
    }

    fn page(&self, shared: &BTreeMap<String, Vec<Flag>>) -> String {
        let mut page = format!("## kubectl nm {}\n\n{}\n\n", self.name, self.about.trim());
        let examples = self.examples.join("\n");
        if !examples.trim().is_empty() {
            let _ = write!(page, "```text\n{}\n```\n\n", examples.trim_end());
        }
        let _ = write!(page, "Usage:\n\n```text\n{}\n```\n\n", self.usage.join("\n"));
        let is_own = |(heading, _): &&(String, Vec<Flag>)| OWN.contains(&heading.as_str());
        let own: Vec<Flag> =
            self.groups.iter().filter(is_own).flat_map(|(_, flags)| flags).cloned().collect();
        page.push_str(&table(&own));
        for (heading, flags) in self.groups.iter().filter(|group| !is_own(group)) {
            let Some(known) = shared.get(heading) else {
                let _ = write!(page, "{heading}:\n\n{}", table(flags));
                continue;
            };
            let name = heading.to_lowercase();
            let _ = write!(page, "It also takes the [{name} flags](#{}-flags)", name.replace(' ', "-"));
            let missing = known.iter().filter(|flag| !flags.iter().any(|own| own.names == flag.names));
            let missing: Vec<String> = missing.map(|flag| format!("`{}`", flag.names)).collect();
            if !missing.is_empty() {
                let _ = write!(page, ", except {}", missing.join(" and "));
            }
            let different: Vec<Flag> = flags.iter().filter(|flag| !known.contains(flag)).cloned().collect();
            let end = if different.is_empty() { "." } else { "; here:" };
            let _ = write!(page, "{end}\n\n{}", table(&different));
        }
        if !self.notes.is_empty() {
            let _ = write!(page, "{}\n\n", self.notes.trim());
        }
        page
    }
}

/// The sections of all commands, and the flags that several have.
pub(crate) fn pages(commands: &[Command]) -> String {
    let mut shared: BTreeMap<String, Vec<Flag>> = BTreeMap::new();
    let groups = || commands.iter().flat_map(|command| &command.groups);
    for (heading, flags) in groups().filter(|(heading, _)| !OWN.contains(&heading.as_str())) {
        if groups().filter(|(other, _)| other == heading).count() > 1 {
            shared.entry(heading.clone()).or_insert_with(|| flags.clone());
        }
    }
    let mut pages: String = commands.iter().map(|command| command.page(&shared)).collect();
    for (heading, flags) in &shared {
        let with = |command: &&Command| command.groups.iter().any(|(other, _)| other == heading);
        let names = commands.iter().filter(with).map(|command| format!("`{}`", command.name));
        let names = names.collect::<Vec<_>>().join(", ");
        let _ = write!(pages, "## {heading} flags\n\nOf the commands {names}.\n\n{}", table(flags));
    }
    pages
}

/// A table of flags, without `--help`, which every command has.
fn table(flags: &[Flag]) -> String {
    let rows: Vec<String> = flags
        .iter()
        .filter(|flag| !flag.names.ends_with("--help"))
        .map(|flag| format!("| `{}` | {} |\n", escaped(&flag.names), escaped(&meaning(&flag.lines))))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let are_flags = flags.iter().any(|flag| flag.names.starts_with(['-', '[', '<']));
    let head = if are_flags { "argument or flag" } else { "name" };
    format!("| {head} | meaning |\n|---|---|\n{}\n", rows.concat())
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The description of a flag on one line: `Possible values` are listed behind it.
fn meaning(lines: &[String]) -> String {
    let mut text = String::new();
    let mut values: Vec<String> = Vec::new();
    for line in lines {
        let bracketed = |name: &str| line.strip_prefix(name)?.strip_suffix(']');
        if let Some(value) = line.strip_prefix("- ") {
            let (name, what) = value.split_once(':').unwrap_or((value, ""));
            values.push(format!("`{name}`: {}", what.trim()));
        } else if let (Some(value), false) = (values.last_mut(), line.is_empty() || line.starts_with('[')) {
            let _ = write!(value, " {line}");
        } else if let Some(default) = bracketed("[default: ") {
            values.push(format!("Default: `{default}`"));
        } else if let Some(names) = bracketed("[possible values: ") {
            let names: Vec<String> = names.split(", ").map(|name| format!("`{name}`")).collect();
            values.push(format!("One of {}", names.join(", ")));
        } else if line != "Possible values:" {
            let gap = if text.is_empty() || text.ends_with(' ') { "" } else { " " };
            let is_end = line.is_empty() && !text.is_empty() && !text.ends_with(['.', ' ']);
            let stop = if is_end { "." } else { "" };
            let _ = write!(text, "{stop}{gap}{line}");
        }
    }
    let text = text.trim().trim_end_matches('.').to_owned();
    let all = [text].into_iter().chain(values).collect::<Vec<_>>();
    all.join(". ")
}
