//! Tables as kubectl prints them: columns as wide as their widest cell, three spaces apart and never narrower than six.

use crate::terminal::text::{Line, Style};

const GAP: usize = 3;

const MIN_WIDTH: usize = 6;

/// Lays rows out under headers. The last column is not padded.
pub fn lines(headers: &[&str], rows: &[Vec<(Style, String)>]) -> Vec<Line> {
    // Measured as displayed: escaped control characters are longer.
    let shown = |text: &str| Line::new(text).to_string();
    let rows: Vec<Vec<(Style, String)>> =
        rows.iter().map(|row| row.iter().map(|(style, text)| (*style, shown(text))).collect()).collect();
    let widths: Vec<usize> = headers
        .iter()
        .enumerate()
        .map(|(column, header)| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|(_, text)| text.chars().count());
            cells.chain([header.chars().count(), MIN_WIDTH - GAP]).max().unwrap_or_default()
        })
        .collect();
    let header: Vec<(Style, String)> =
        headers.iter().map(|header| (Style::Plain, (*header).to_owned())).collect();
    std::iter::once(&header).chain(&rows).map(|row| row_line(row, &widths)).collect()
}

fn row_line(row: &[(Style, String)], widths: &[usize]) -> Line {
    let mut line = Line::default();
    for (column, ((style, text), width)) in row.iter().zip(widths).enumerate() {
        line = line.with(*style, text);
        if column + 1 < row.len() {
            line = line.and(" ".repeat(width.saturating_sub(text.chars().count()) + GAP));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_blanks() {
        let cell = |text: &str| (Style::Plain, text.to_owned());
        let rows = [vec![cell("n1"), cell("ok"), cell("x")], vec![cell("long-name"), cell("\x1b"), cell("")]];
        let printed: Vec<String> = lines(&["NODE", "STATE", "AGE"], &rows)
            .iter()
            .map(|line| line.to_string().trim_end().to_owned())
            .collect();
        assert_eq!(printed, ["NODE        STATE   AGE", "n1          ok      x", "long-name   ^["]);
    }

    #[test]
    fn columns_have_a_least_width() {
        let row = vec![(Style::Plain, String::from("a")), (Style::Plain, String::from("b"))];
        assert_eq!(lines(&["X", "Y"], &[row])[1].to_string(), "a     b");
    }
}
