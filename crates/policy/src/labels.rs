//! Labels, and selectors of them (`metav1.LabelSelector`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A label selector, valid; the empty one matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    requirements: BTreeSet<Requirement>,
}

/// One condition of a selector; all of them hold for an object that it matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requirement {
    /// The label has one of these values.
    In(String, BTreeSet<String>),
    /// The label has none of these values, or is not there.
    NotIn(String, BTreeSet<String>),
    /// The label is there.
    Exists(String),
    /// The label is not there.
    DoesNotExist(String),
}

/// A selector as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SelectorSpec {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Selector {
    /// Makes a selector of these conditions.
    pub fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self {
            requirements: requirements.into_iter().collect(),
        }
    }

    /// Reads a selector.
    ///
    /// # Errors
    /// The name of the operator or the number of values that it cannot have.
    pub(crate) fn read(spec: &SelectorSpec) -> Result<Self, String> {
        let labels = spec.match_labels.iter();
        let equal = labels.map(|(key, value)| {
            Ok(Requirement::In(
                key.clone(),
                BTreeSet::from([value.clone()]),
            ))
        });
        let expressions = spec.match_expressions.iter().map(Expression::requirement);
        let requirements = equal.chain(expressions).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// Reports whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|one| one.holds(labels))
    }
}

impl Expression {
    fn requirement(&self) -> Result<Requirement, String> {
        let key = self.key.clone();
        let values: BTreeSet<String> = self.values.iter().cloned().collect();
        match (self.operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Requirement::In(key, values)),
            ("NotIn", false) => Ok(Requirement::NotIn(key, values)),
            ("Exists", true) => Ok(Requirement::Exists(key)),
            ("DoesNotExist", true) => Ok(Requirement::DoesNotExist(key)),
            ("In" | "NotIn", true) => Err(format!(
                "the expression of `{key}` has the operator {} and no values: write at least one",
                self.operator
            )),
            ("Exists" | "DoesNotExist", false) => Err(format!(
                "the expression of `{key}` has the operator {} and values: remove them",
                self.operator
            )),
            (other, _) => Err(format!(
                "the expression of `{key}` has the operator `{other}`: write In, NotIn, Exists or DoesNotExist"
            )),
        }
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|it| values.contains(it)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|it| !values.contains(it)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: &str) -> Result<Selector, String> {
        Selector::read(&serde_json::from_str(json).unwrap())
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// A-NP-17: NotIn and DoesNotExist match objects without the key.
    #[test]
    fn each_operator_selects_what_the_api_says() {
        let of = |operator: &str, values: &str| {
            selector(&format!(
                r#"{{"matchExpressions": [{{"key": "app", "operator": "{operator}", "values": {values}}}]}}"#
            ))
            .unwrap()
        };
        let (web, db, none) = (
            labels(&[("app", "web")]),
            labels(&[("app", "db")]),
            labels(&[("tier", "a")]),
        );
        for (selector, expected) in [
            (of("In", r#"["web", "www"]"#), [true, false, false]),
            (of("NotIn", r#"["web"]"#), [false, true, true]),
            (of("Exists", "[]"), [true, true, false]),
            (of("DoesNotExist", "[]"), [false, false, true]),
        ] {
            let found = [&web, &db, &none].map(|labels| selector.matches(labels));
            assert_eq!(found, expected, "{selector:?}");
        }
    }

    #[test]
    fn all_conditions_hold_and_the_empty_selector_matches_every_object() {
        let both = selector(
            r#"{"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}"#,
        )
        .unwrap();
        assert!(both.matches(&labels(&[("a", "1"), ("b", "")])));
        assert!(!both.matches(&labels(&[("a", "1")])));
        assert!(!both.matches(&labels(&[("a", "2"), ("b", "")])));
        assert!(selector("{}").unwrap().matches(&Labels::new()));
    }

    #[test]
    fn a_wrong_expression_is_refused_with_its_key_and_a_remedy() {
        for (json, words) in [
            (r#"{"key": "a", "operator": "In"}"#, "at least one"),
            (
                r#"{"key": "a", "operator": "Exists", "values": ["1"]}"#,
                "remove them",
            ),
            (r#"{"key": "a", "operator": "Is"}"#, "write In"),
        ] {
            let error = selector(&format!(r#"{{"matchExpressions": [{json}]}}"#)).unwrap_err();
            assert!(error.contains(words) && error.contains("`a`"), "{error}");
        }
    }
}
