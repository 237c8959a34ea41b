//! From the text of a template to its nodes.

use std::str::Chars;

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// Text that stands as it is.
    Text(String),
    /// An action: what is between two braces, applied one after the other.
    List(Vec<Node>),
    /// `.name`
    Field(String),
    /// `[start:end:step]`
    Slice(Slice),
    /// `[?(left operator right)]`
    Filter { left: Vec<Node>, operator: String, right: Vec<Node> },
    /// `[?(path)]`
    Exists(Vec<Node>),
    /// `.*`
    Wildcard,
    /// `..`
    Recursive,
    /// `[a,b]`
    Union(Vec<Vec<Node>>),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// `true` or `false`
    Bool(bool),
    /// `range`, `end`, or a word that means nothing.
    Word(String),
}

/// Which elements of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: End,
    pub(super) step: Option<i64>,
}

/// Where a slice ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// With the array.
    Open,
    /// Before this element.
    Before(i64),
    /// After the one element that it begins with.
    Single,
}

/// Reads a template.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, String> {
    let input: Vec<char> = text.chars().collect();
    let (mut nodes, mut at) = (Vec::new(), 0);
    while at < input.len() {
        let open = (at..input.len()).find(|at| input[*at] == '{').unwrap_or(input.len());
        if open > at {
            nodes.push(Node::Text(input[at..open].iter().collect()));
        }
        if open == input.len() {
            break;
        }
        let mut action = Action { input: &input, at: open + 1, nodes: Vec::new() };
        action.parse()?;
        at = action.at;
        nodes.push(Node::List(action.nodes));
    }
    Ok(nodes)
}

/// A part of an action, read as an action of its own.
fn parse_part(text: &str) -> Result<Vec<Node>, String> {
    match parse(&format!("{{{text}}}"))?.into_iter().next() {
        Some(Node::List(nodes)) => Ok(nodes),
        _ => Ok(Vec::new()),
    }
}

/// What is between two braces while it is read.
struct Action<'a> {
    input: &'a [char],
    at: usize,
    nodes: Vec<Node>,
}

impl Action<'_> {
    fn parse(&mut self) -> Result<(), String> {
        loop {
            let Some(next) = self.peek() else { return Err(String::from("unclosed action")) };
            match next {
                '}' => {
                    self.at += 1;
                    return Ok(());
                }
                '\n' | '\r' => return Err(String::from("unclosed action")),
                '[' if self.begins("[?(") => self.filter()?,
                '.' if self.begins("..") => self.recursive()?,
                ' ' | '@' | '$' => self.at += 1,
                '[' => self.array()?,
                '"' | '\'' => self.quote(next)?,
                '.' => {
                    self.at += 1;
                    self.field();
                }
                '+' | '-' => self.number()?,
                _ if next.is_numeric() => self.number()?,
                _ if next == '_' || next.is_alphabetic() => self.word(),
                _ => {
                    return Err(format!(
                        "unrecognized character in action: U+{:04X} '{next}'",
                        u32::from(next)
                    ));
                }
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.input.get(self.at).copied()
    }

    fn begins(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(offset, c)| self.input.get(self.at + offset) == Some(&c))
    }

    fn text(&self, from: usize) -> String {
        self.input[from..self.at].iter().collect()
    }

    fn word(&mut self) {
        let from = self.at;
        while self.peek().is_some_and(|c| !ends_word(c)) {
            self.at += 1;
        }
        let word = self.text(from);
        self.nodes.push(match word.as_str() {
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            _ => Node::Word(word),
        });
    }

    fn recursive(&mut self) -> Result<(), String> {
        if self.nodes.last() == Some(&Node::Recursive) {
            return Err(String::from("invalid multiple recursive descent"));
        }
        self.at += 2;
        self.nodes.push(Node::Recursive);
        if self.peek().is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            self.field();
        }
        Ok(())
    }

    fn field(&mut self) {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| !ends_word(*c)) {
            self.at += 1;
            if c != '\\' {
                name.push(c);
            } else if let Some(escaped) = self.peek() {
                self.at += 1;
                name.push(escaped);
            }
        }
        self.nodes.push(if name == "*" { Node::Wildcard } else { Node::Field(name) });
    }

    fn number(&mut self) -> Result<(), String> {
        let from = self.at;
        if matches!(self.peek(), Some('+' | '-')) {
            self.at += 1;
        }
        while self.peek().is_some_and(|c| c == '.' || c.is_numeric()) {
            self.at += 1;
        }
        let text = self.text(from);
        let int = text.parse().map(Node::Int).ok();
        let number = int.or_else(|| text.parse().map(Node::Float).ok());
        self.nodes.push(number.ok_or_else(|| format!("cannot parse number {text}"))?);
        Ok(())
    }

    fn quote(&mut self, quote: char) -> Result<(), String> {
        let from = self.at + 1;
        loop {
            self.at += 1;
            match self.peek() {
                None | Some('\n') => return Err(String::from("unterminated quoted string")),
                Some(c) if c == quote && self.input[self.at - 1] != '\\' => break,
                Some(_) => {}
            }
        }
        let quoted = self.text(from);
        self.at += 1;
        let text = unquote(&quoted, quote)
            .ok_or_else(|| format!("unquote string {quote}{quoted}{quote} error invalid syntax"))?;
        self.nodes.push(Node::Text(text));
        Ok(())
    }

    fn array(&mut self) -> Result<(), String> {
        let from = self.at + 1;
        loop {
            self.at += 1;
            match self.peek() {
                None | Some('\n') => return Err(String::from("unterminated array")),
                Some(']') => break,
                Some(_) => {}
            }
        }
        let text = self.text(from);
        self.at += 1;
        if text.contains(',') {
            let parts = text.split(',').map(|part| parse_part(&format!("[{}]", part.trim_matches(' '))));
            self.nodes.push(Node::Union(parts.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''))
            .filter(|key| !key.contains('\''));
        match key {
            Some(key) => self.nodes.extend(parse_part(&format!(".{key}"))?),
            None => self.nodes.push(Node::Slice(slice(&text)?)),
        }
        Ok(())
    }

    fn filter(&mut self) -> Result<(), String> {
        self.at += 3;
        let from = self.at;
        let (mut quote, mut closed) = (None, false);
        // Quotes are looked for once: a parenthesis within the first pair does not end the filter.
        loop {
            match self.peek() {
                None | Some('\n') => return Err(String::from("unterminated filter")),
                Some(c @ ('"' | '\'')) if quote.is_none() => quote = Some(c),
                Some(c @ ('"' | '\'')) => closed |= quote == Some(c) && self.input[self.at - 1] != '\\',
                Some(')') if quote.is_some() == closed => break,
                Some(_) => {}
            }
            self.at += 1;
        }
        let text = self.text(from);
        self.at += 1;
        if self.peek() != Some(']') {
            return Err(String::from("unclosed array expect ]"));
        }
        self.at += 1;
        self.nodes.push(match comparison(&text) {
            None => Node::Exists(parse_part(&text)?),
            Some((left, operator, right)) => Node::Filter {
                left: parse_part(left)?,
                operator: operator.to_owned(),
                right: parse_part(right)?,
            },
        });
        Ok(())
    }
}

/// The two sides of a filter and what is between them; none where there is nothing to compare.
fn comparison(text: &str) -> Option<(&str, &str, &str)> {
    let is_operator = |c: char| "!<>=".contains(c);
    let begin = text.find(is_operator).filter(|begin| *begin > 0)?;
    let rest = &text[begin..];
    let length = rest.find(|c| !is_operator(c)).unwrap_or(rest.len() - 1);
    (length > 0).then(|| (&text[..begin], &rest[..length], &rest[length..]))
}

/// Reads what is between brackets: `2`, `-1`, `1:3`, `:`, `*`.
fn slice(text: &str) -> Result<Slice, String> {
    let invalid = || format!("invalid array index {text}");
    let parts: Vec<&str> = if text == "*" { vec!["", ""] } else { text.split(':').collect() };
    let number = |part: Option<&&str>| -> Result<Option<i64>, String> {
        let Some(part) = part.filter(|part| !part.is_empty()) else { return Ok(None) };
        let digits = part.strip_prefix('-').unwrap_or(part);
        if !digits.chars().all(|c| c.is_ascii_digit()) {
            return Err(invalid());
        }
        part.parse().map(Some).map_err(|_| format!("array index {part} is not a number"))
    };
    if parts.len() > 3 {
        return Err(invalid());
    }
    let (start, end, step) = (number(parts.first())?, number(parts.get(1))?, number(parts.get(2))?);
    let end = match (parts.len(), end) {
        (1, _) => End::Single,
        (_, Some(end)) => End::Before(end),
        (_, None) => End::Open,
    };
    Ok(Slice { start, end, step })
}

/// Whether the character ends a name.
fn ends_word(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// The text that stands between quotes, with escapes as in Go but for octal ones; none if one is broken.
fn unquote(quoted: &str, quote: char) -> Option<String> {
    let mut text = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        text.push(match rest.next()? {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' => code(&mut rest, 2)?,
            'u' => code(&mut rest, 4)?,
            'U' => code(&mut rest, 8)?,
            escaped if escaped == quote || escaped == '\\' => escaped,
            _ => return None,
        });
    }
    Some(text)
}

/// The character of a number in so many hexadecimal digits.
fn code(rest: &mut Chars<'_>, digits: usize) -> Option<char> {
    let code: String = rest.by_ref().take(digits).collect();
    let number = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits)?;
    char::from_u32(number)
}
