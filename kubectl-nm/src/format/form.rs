//! What may stand behind `-o`.

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use crate::format::columns::Columns;
use crate::format::jsonpath::Template;

/// How objects are shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Format {
    /// A table.
    Table,
    /// A table with more columns.
    Wide,
    /// Another form, which needs to know nothing of what it shows.
    Form(Form),
}

/// A form that any object can be shown in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `kind.group/name`, as commands take it.
    Name,
    /// What a template makes of it.
    JsonPath(Template),
    /// A table of what paths find in it.
    Columns(Columns),
}

/// Reads what stands behind `-o`.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Format, String> {
    let (name, argument) =
        text.split_once('=').map_or((text, None), |(name, argument)| (name, Some(argument)));
    let form = match (name, argument) {
        ("table", None) => return Ok(Format::Table),
        ("wide", None) => return Ok(Format::Wide),
        ("json", None) => Form::Json,
        ("yaml", None) => Form::Yaml,
        ("name", None) => Form::Name,
        ("jsonpath", None | Some("")) => {
            return Err(String::from(
                "template format specified but no template given; -o jsonpath='{.metadata.name}'",
            ));
        }
        ("jsonpath", Some(template)) => Form::JsonPath(Template::parse(template)?),
        ("custom-columns", columns) => Form::Columns(Columns::parse(columns.unwrap_or_default())?),
        _ => {
            return Err(String::from(
                "allowed formats are: table, wide, json, yaml, name, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,...",
            ));
        }
    };
    Ok(Format::Form(form))
}

/// Reads what stands behind the `-o` of a command that shows objects of several kinds, for which there is no table.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn parse_objects(text: &str) -> Result<Form, String> {
    match parse(text)? {
        Format::Form(form) => Ok(form),
        Format::Table | Format::Wide => Err(String::from(
            "allowed formats are: json, yaml, name, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,...",
        )),
    }
}

/// Reads what stands behind the `-o` of a command whose data is no object: a table and names are nothing for it.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn parse_data(text: &str) -> Result<Form, String> {
    match parse(text) {
        Ok(Format::Form(form @ (Form::Json | Form::Yaml | Form::JsonPath(_)))) => Ok(form),
        Err(said) if text.starts_with("jsonpath") => Err(said),
        _ => Err(String::from("allowed formats are: json, yaml, jsonpath=TEMPLATE")),
    }
}

/// What a shell is offered behind `-o`, each with a whole example of it.
const OFFERED: [(&str, &str); 7] = [
    ("table", "table"),
    ("wide", "wide"),
    ("json", "json"),
    ("yaml", "yaml"),
    ("name", "name"),
    ("jsonpath=", "jsonpath={.metadata.name}"),
    ("custom-columns=", "custom-columns=NAME:.metadata.name"),
];

/// The formats that `parse` takes, for the shell in which a line is typed.
pub(crate) fn offered<T: 'static>(parse: fn(&str) -> Result<T, String>) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let taken = OFFERED.iter().filter(|(_, example)| parse(example).is_ok());
        taken.map(|(format, _)| CompletionCandidate::new(format)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_has_no_name_and_no_columns() {
        assert_eq!(parse_data("json"), Ok(Form::Json));
        assert!(matches!(parse_data("jsonpath={.a}"), Ok(Form::JsonPath(_))));
        for (text, complaint) in [
            ("table", "allowed formats are: json, yaml,"),
            ("name", "allowed formats are: json, yaml,"),
            ("custom-columns=A:.b", "allowed formats are: json, yaml,"),
            ("jsonpath=", "no template given"),
        ] {
            assert!(parse_data(text).is_err_and(|said| said.contains(complaint)), "{text}");
        }
    }

    #[test]
    fn formats_are_those_of_kubectl() {
        for (text, format) in [
            ("table", Format::Table),
            ("wide", Format::Wide),
            ("json", Format::Form(Form::Json)),
            ("yaml", Format::Form(Form::Yaml)),
            ("name", Format::Form(Form::Name)),
        ] {
            assert_eq!(parse(text), Ok(format));
        }
        assert!(matches!(parse("jsonpath={.a==1}"), Ok(Format::Form(Form::JsonPath(_)))));
        assert!(matches!(parse("custom-columns=A:.b"), Ok(Format::Form(Form::Columns(_)))));
        for (text, complaint) in [
            ("html", "allowed formats are"),
            ("json=x", "allowed formats are"),
            ("jsonpath", "no template given"),
            ("jsonpath={", "unclosed action"),
            ("custom-columns", "no custom columns given"),
        ] {
            assert!(parse(text).is_err_and(|said| said.contains(complaint)), "{text}");
        }
    }
}
