//! `-o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName`: a table of what paths find in objects.

use serde_json::Value;

use crate::format::jsonpath::Template;
use crate::terminal::table;
use crate::terminal::text::{Line, Style};

/// The columns of a table, each with its header and where its cells come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Columns(Vec<(String, Template)>);

impl Columns {
    /// Reads the columns.
    ///
    /// # Errors
    ///
    /// Says what is wrong with them.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err(String::from("custom-columns format specified but no custom columns given"));
        }
        let column = |part: &str| match part.split_once(':') {
            Some((header, path)) => Ok((header.to_owned(), Template::parse_path(path)?)),
            None => {
                Err(format!("unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"))
            }
        };
        text.split(',').map(column).collect::<Result<_, _>>().map(Self)
    }

    /// The table of these objects.
    ///
    /// # Errors
    ///
    /// When a path asks for what an object cannot give, with the path.
    pub(super) fn table(&self, objects: &[Value]) -> Result<Vec<Line>, (String, String)> {
        let headers: Vec<&str> = self.0.iter().map(|(header, _)| header.as_str()).collect();
        let row = |object: &Value| self.0.iter().map(|(_, path)| cell(path, object)).collect();
        let rows = objects.iter().map(row).collect::<Result<Vec<_>, _>>()?;
        Ok(table::lines(&headers, &rows))
    }
}

fn cell(path: &Template, object: &Value) -> Result<(Style, String), (String, String)> {
    let values = path.values(object).map_err(|why| (path.text().to_owned(), why))?;
    let text = if values.is_empty() { String::from("<none>") } else { values.join(",") };
    Ok((Style::Plain, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_hold_what_paths_find_and_say_where_that_is_nothing() {
        let columns = Columns::parse("NAME:.metadata.name,TAGS:{.tags[*]},X:nope,EMPTY:").unwrap();
        let objects = [
            json!({"metadata": {"name": "a\u{1b}[31m"}, "tags": [1, "two"]}),
            json!({"metadata": {"name": "b"}, "tags": []}),
        ];
        let lines: Vec<String> = columns.table(&objects).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "NAME      TAGS     X        EMPTY",
                "a^[[31m   1,two    <none>   <none>",
                "b         <none>   <none>   <none>",
            ]
        );
        let failed = columns.table(&[json!({"tags": "x"})]).unwrap_err();
        assert_eq!(failed, ("{.tags[*]}".into(), "string is not array or slice".into()));
    }

    #[test]
    fn columns_without_a_path_are_refused() {
        for (text, complaint) in [
            ("", "no custom columns given"),
            ("NAME", "unexpected custom-columns spec: NAME, expected <header>:<json-path-expr>"),
            ("NAME:.a[", "unterminated array"),
        ] {
            assert!(Columns::parse(text).is_err_and(|said| said.contains(complaint)), "{text}");
        }
    }
}
