//! The values that a template finds in an object.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use crate::format::jsonpath::go_text::{sprint, type_name};
use crate::format::jsonpath::parse::{End, Node, Slice};

/// Values found on the way: parts of the object, or what stands in the template itself.
type Found<'a> = Vec<Cow<'a, Value>>;

/// The values that each part of the template finds, in the order in which they are printed.
pub(super) fn evaluate<'a>(nodes: &'a [Node], object: &'a Value) -> Result<Vec<Found<'a>>, String> {
    Evaluation::default().group(nodes, 0, &Cow::Borrowed(object))
}

/// Where an evaluation stands with its ranges. A range has no node of its own: whatever follows it belongs to it until
/// an `end`, and a template without one prints what follows once more after the last element, as kubectl does.
#[derive(Default)]
struct Evaluation {
    begun: bool,
    ended: bool,
    depth: usize,
    last_end: Option<usize>,
}

impl Evaluation {
    fn group<'a>(
        &mut self,
        nodes: &'a [Node],
        from: usize,
        object: &Cow<'a, Value>,
    ) -> Result<Vec<Found<'a>>, String> {
        let (mut groups, mut at) = (Vec::new(), from);
        while let Some(node) = nodes.get(at) {
            let found = self.walk(node, vec![object.clone()])?;
            if std::mem::take(&mut self.ended) {
                self.last_end = Some(at);
                break;
            }
            if std::mem::take(&mut self.begun) {
                self.depth += 1;
                if found.is_empty() {
                    // Only to find its end.
                    self.group(nodes, at + 1, &Cow::Owned(Value::Null))?;
                }
                for value in &found {
                    groups.extend(self.group(nodes, at + 1, value)?);
                }
                self.depth -= 1;
                at = self.last_end.filter(|end| *end > at).unwrap_or(at);
            } else {
                groups.push(found);
            }
            at += 1;
        }
        Ok(groups)
    }

    fn list<'a>(&mut self, nodes: &'a [Node], input: Found<'a>) -> Result<Found<'a>, String> {
        nodes.iter().try_fold(input, |input, node| self.walk(node, input))
    }

    fn walk<'a>(&mut self, node: &'a Node, input: Found<'a>) -> Result<Found<'a>, String> {
        let literal = |value: Value| input.iter().map(|_| Cow::Owned(value.clone())).collect();
        Ok(match node {
            Node::Text(text) => vec![Cow::Owned(Value::from(text.as_str()))],
            Node::Int(number) => literal(Value::from(*number)),
            Node::Float(number) => literal(Value::from(*number)),
            Node::Bool(truth) => literal(Value::from(*truth)),
            Node::List(nodes) => self.list(nodes, input)?,
            Node::Word(word) => return self.word(word, input),
            Node::Field(name) => input.into_iter().filter_map(|value| member(&value, name)).collect(),
            Node::Wildcard => input.iter().flat_map(children).collect(),
            Node::Recursive => input.into_iter().flat_map(descendants).collect(),
            Node::Union(parts) => {
                let found = parts.iter().map(|part| self.list(part, input.clone()));
                found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
            }
            Node::Slice(slice) => {
                let parts = input.iter().map(|value| elements(value, slice));
                parts.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
            }
            Node::Exists(path) => self.filter(input, |this, element| {
                // What cannot be looked for does not exist.
                Ok(this.list(path, vec![element]).is_ok_and(|found| !found.is_empty()))
            })?,
            Node::Filter { left, operator, right } => self.filter(input, |this, element| {
                let one = |found: Found<'a>| match found.len() {
                    0 | 1 => Ok(found.into_iter().next()),
                    _ => Err(String::from("can only compare one element at a time")),
                };
                let Some(left) = one(this.list(left, vec![element.clone()])?)? else { return Ok(false) };
                let Some(right) = one(this.list(right, vec![element])?)? else { return Ok(false) };
                holds(&left, operator, &right)
            })?,
        })
    }

    fn word<'a>(&mut self, word: &str, input: Found<'a>) -> Result<Found<'a>, String> {
        match word {
            "range" => {
                self.begun = true;
                Ok(input)
            }
            "end" if self.depth > 0 => {
                self.ended = true;
                Ok(Vec::new())
            }
            "end" => Err(String::from("not in range, nothing to end")),
            other => Err(format!("unrecognized identifier {other}")),
        }
    }

    fn filter<'a>(
        &mut self,
        input: Found<'a>,
        passes: impl Fn(&mut Self, Cow<'a, Value>) -> Result<bool, String>,
    ) -> Result<Found<'a>, String> {
        let mut passing = Vec::new();
        for value in input {
            if !value.is_array() {
                return Err(format!("{} is not array or slice and cannot be filtered", sprint(&value)));
            }
            for element in children(&value) {
                if passes(self, element.clone())? {
                    passing.push(element);
                }
            }
        }
        Ok(passing)
    }
}

/// The member of that name, where there is one.
fn member<'a>(value: &Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        // What stands in a template is no object.
        Cow::Owned(_) => None,
    }
}

/// The elements of an array, or the values of an object.
fn children<'a>(value: &Cow<'a, Value>) -> Found<'a> {
    match value {
        Cow::Borrowed(Value::Array(elements)) => elements.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(members)) => members.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(_) | Cow::Owned(_) => Vec::new(),
    }
}

/// The value and everything below it, but for numbers and the like, which have nothing to look into.
fn descendants(value: Cow<'_, Value>) -> Found<'_> {
    let has_parts = match &*value {
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    let below = children(&value).into_iter().flat_map(descendants);
    has_parts.then_some(value).into_iter().chain(below).collect()
}

/// The elements that a slice takes.
fn elements<'a>(value: &Cow<'a, Value>, slice: &Slice) -> Result<Found<'a>, String> {
    let Some(array) = value.as_array() else {
        return if value.is_null() {
            Ok(Vec::new())
        } else {
            Err(format!("{} is not array or slice", type_name(value)))
        };
    };
    let length = i64::try_from(array.len()).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let start = from_end(slice.start.unwrap_or(0));
    let end = match slice.end {
        End::Open => length,
        End::Single => start.saturating_add(1),
        End::Before(end) => from_end(end),
    };
    if start == end {
        return Ok(Vec::new());
    }
    let outside = |index: i64| Err(format!("array index out of bounds: index {index}, length {length}"));
    if !(0..length).contains(&start) {
        return outside(start);
    }
    if !(0..=length).contains(&end) {
        return outside(end - 1);
    }
    if start > end {
        return Err(format!("starting index {start} is greater than ending index {end}"));
    }
    let step = match slice.step.map(usize::try_from) {
        None => 1,
        Some(Ok(step)) if step > 0 => step,
        Some(_) => return Err(String::from("step must be > 0")),
    };
    let taken = |index: &usize| (start..end).contains(&i64::try_from(*index).unwrap_or(i64::MAX));
    let indexes = (0..array.len()).filter(taken).step_by(step).collect::<Vec<_>>();
    let all = children(value);
    Ok(indexes.into_iter().filter_map(|index| all.get(index).cloned()).collect())
}

/// Whether a comparison holds.
fn holds(left: &Value, operator: &str, right: &Value) -> Result<bool, String> {
    let order = compare(left, right, !matches!(operator, "==" | "!="))?;
    Ok(match operator {
        "==" => order == Some(Ordering::Equal),
        "!=" => order != Some(Ordering::Equal),
        "<" => order == Some(Ordering::Less),
        "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ">" => !matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ">=" => order != Some(Ordering::Less),
        _ => return Err(format!("unrecognized filter operator {operator}")),
    })
}

/// How two values of the same kind stand to each other.
fn compare(left: &Value, right: &Value, in_order: bool) -> Result<Option<Ordering>, String> {
    let is_basic = |value: &Value| !matches!(value, Value::Null | Value::Array(_) | Value::Object(_));
    if !is_basic(left) || !is_basic(right) {
        return Err(String::from("invalid type for comparison"));
    }
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(Some(left.cmp(right))),
        (Value::Bool(_), Value::Bool(_)) if in_order => Err(String::from("invalid type for comparison")),
        (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            Ok(match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => left.as_f64().partial_cmp(&right.as_f64()),
            })
        }
        _ => Err(String::from("incompatible types for comparison")),
    }
}
