//! `matchConditions` of a webhook: CEL expressions that must all be true for it to be called.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel};
use serde_json::Value;

/// One condition.
pub(crate) struct Condition {
    expression: String,
    program: Result<Program, String>,
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.expression).finish()
    }
}

impl Condition {
    /// Reads `{name, expression}`.
    pub(crate) fn parse(condition: &Value) -> Self {
        let expression = condition["expression"].as_str().unwrap_or_default().to_owned();
        let program = compile(&expression);
        Self { expression, program }
    }

    fn holds(&self, context: &Context<'_>) -> Result<bool, String> {
        match self.value(context)? {
            Cel::Bool(holds) => Ok(holds),
            _ => Err(self.failed("the result is no boolean")),
        }
    }

    fn value(&self, context: &Context<'_>) -> Result<Cel, String> {
        let program = self.program.as_ref().map_err(|error| self.failed(error))?;
        program.execute(context).map_err(|error| match error {
            ExecutionError::NoSuchKey(key) => self.failed(&format!("no such key: {key}")),
            error => self.failed(&error.to_string()),
        })
    }

    fn failed(&self, because: &str) -> String {
        format!("expression '{}' resulted in error: {because}", self.expression)
    }
}

/// Compiles an expression.
pub(crate) fn compile(expression: &str) -> Result<Program, String> {
    Program::compile(expression).map_err(|error| error.to_string())
}

/// Whether all conditions are true for a request. A condition that is false takes precedence over one that fails.
///
/// # Errors
/// The first failure, if no condition is false.
pub(crate) fn all_hold(conditions: &[Condition], request: &Value) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let context = context(request);
    let mut failed = None;
    for condition in conditions {
        match condition.holds(&context) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(because) => _ = failed.get_or_insert(because),
        }
    }
    failed.map_or(Ok(true), Err)
}

/// Whether an expression is true. It may use variables, each of which may use the variables before it.
///
/// # Errors
/// Why the evaluation failed.
pub(crate) fn holds(
    condition: &Condition,
    variables: &[(&str, Condition)],
    request: &Value,
) -> Result<bool, String> {
    let mut context = context(request);
    let mut values: HashMap<Key, Cel> = HashMap::new();
    for (name, variable) in variables {
        values.insert(Key::from((*name).to_owned()), variable.value(&context)?);
        context.add_variable_from_value("variables", Cel::Map(Map { map: Arc::new(values.clone()) }));
    }
    condition.holds(&context)
}

/// The context of every expression.
fn context(request: &Value) -> Context<'static> {
    let mut context = Context::default().with_all();
    for (name, value) in
        [("request", request), ("object", &request["object"]), ("oldObject", &request["oldObject"])]
    {
        context.add_variable_from_value(name, cel(value));
    }
    // Every value is dynamic.
    context.add_function("dyn", |value: Cel| Ok::<Cel, ExecutionError>(value));
    context
}

/// A JSON value as a CEL value: whole numbers are `int`.
pub fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(cel).collect())),
        Value::Object(fields) => {
            let fields: HashMap<Key, Cel> =
                fields.iter().map(|(name, value)| (Key::from(name.clone()), cel(value))).collect();
            Cel::Map(Map { map: Arc::new(fields) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(expressions: &[&str]) -> Result<bool, String> {
        let conditions: Vec<Condition> =
            expressions.iter().map(|text| Condition::parse(&json!({"expression": text}))).collect();
        let request = json!({"name": "a", "operation": "CREATE", "object": {"data": {"x": "1"}, "n": 3},
            "oldObject": null, "userInfo": {"username": "me", "groups": ["g"]}});
        all_hold(&conditions, &request)
    }

    #[test]
    fn a_false_match_condition_takes_precedence_over_a_failing_one() {
        assert_eq!(check(&[]), Ok(true));
        assert_eq!(check(&["request.name == 'a'", "object.n > 2", "oldObject == null"]), Ok(true));
        assert_eq!(check(&["!('g' in request.userInfo.groups)"]), Ok(false));
        assert_eq!(check(&["has(object.data.nope)"]), Ok(false));
        assert_eq!(
            check(&["object.data.nope == \"1\""]),
            Err("expression 'object.data.nope == \"1\"' resulted in error: no such key: nope".into())
        );
        assert_eq!(check(&["object.data.nope == '1'", "false"]), Ok(false));
    }
}
