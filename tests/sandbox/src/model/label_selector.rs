//! Label selectors in objects: `matchLabels` and `matchExpressions` of a `metav1.LabelSelector`, and the expressions
//! of a node affinity, which have two more operators.

use serde_json::Value;

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl Requirement {
    /// Reads `{key, operator, values}`; none for an unknown operator.
    pub(crate) fn parse(expression: &Value) -> Option<Self> {
        let operator = match expression["operator"].as_str()? {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        let values = expression["values"].as_array().into_iter().flatten();
        Some(Self {
            key: expression["key"].as_str()?.to_owned(),
            operator,
            values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    fn equal(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] }
    }

    /// The key of the label or field.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The values, if the requirement is met by exactly one of these values.
    pub(crate) fn wanted(&self) -> Option<&[String]> {
        (self.operator == Operator::In).then_some(&self.values)
    }

    /// Whether a label with this value, or a missing label, meets the requirement.
    pub(crate) fn admits(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
        let bound = || number(self.values.first().map(String::as_str));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => number(value).zip(bound()).is_some_and(|(found, bound)| found > bound),
            Operator::Lt => number(value).zip(bound()).is_some_and(|(found, bound)| found < bound),
        }
    }

    fn matches(&self, labels: &Value) -> bool {
        self.admits(labels[self.key.as_str()].as_str())
    }
}

/// Whether these labels meet every requirement.
pub(crate) fn all_match(requirements: &[Requirement], labels: &Value) -> bool {
    requirements.iter().all(|requirement| requirement.matches(labels))
}

/// A `metav1.LabelSelector`: an empty one selects everything, an absent or malformed one nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Option<Vec<Requirement>>);

impl LabelSelector {
    /// Reads a selector from an object.
    pub(crate) fn parse(selector: &Value) -> Self {
        if !selector.is_object() {
            return Self(None);
        }
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let mut requirements: Vec<_> =
            labels.map(|(key, value)| Requirement::equal(key, value.as_str().unwrap_or_default())).collect();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let Some(requirement) = Requirement::parse(expression) else {
                return Self(None);
            };
            requirements.push(requirement);
        }
        Self(Some(requirements))
    }

    /// Whether the selector selects an object with these labels.
    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.0.as_ref().is_some_and(|requirements| all_match(requirements, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "cases read better without a borrow each")]
    fn check(selector: Value, labels: Value, expected: bool) {
        let found = LabelSelector::parse(&selector).matches(&labels);
        assert_eq!(found, expected, "{selector} on {labels}");
    }

    #[test]
    fn an_empty_selector_matches_all_and_an_absent_one_nothing() {
        check(json!({}), json!({"a": "b"}), true);
        check(json!({}), Value::Null, true);
        check(Value::Null, json!({"a": "b"}), false);
    }

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        check(json!({"matchLabels": {"a": "b"}}), json!({"a": "b", "c": "d"}), true);
        check(json!({"matchLabels": {"a": "b", "c": "x"}}), json!({"a": "b"}), false);
        check(expression("In", &["x", "b"]), json!({"a": "b"}), true);
        check(expression("NotIn", &["b"]), json!({"a": "b"}), false);
        check(expression("NotIn", &["b"]), json!({}), true);
        check(expression("Exists", &[]), json!({"a": ""}), true);
        check(expression("DoesNotExist", &[]), json!({"a": ""}), false);
        check(expression("Gt", &["4"]), json!({"a": "5"}), true);
        check(expression("Lt", &["4"]), json!({"a": "5"}), false);
        check(expression("Bogus", &[]), json!({"a": "b"}), false);
    }
}
