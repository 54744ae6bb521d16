//! JSON objects read the way Go's `encoding/json` reads them.
//!
//! Runtimes written in Go match keys without regard to case and send whatever case their structs
//! have (CNI-CAP-03, CNI-CONF-08), and a `null` is an absent value. Every error says the path of
//! the value, so that a user finds it in the configuration.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::error::SpecError;

/// Longest piece of a refused value quoted in an error, in characters.
const QUOTE: usize = 60;

/// An object and where it stands in the document.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    path: String,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The document itself; its keys have no path in front.
    pub(crate) fn root(value: &'a Value, expected: &'static str) -> Result<Self, SpecError> {
        match value {
            Value::Object(object) => Ok(Self {
                path: String::new(),
                object,
            }),
            other => Err(refused("(document)", expected, other)),
        }
    }

    /// An object somewhere inside.
    pub(crate) fn at(path: String, value: &'a Value) -> Result<Self, SpecError> {
        match value {
            Value::Object(object) => Ok(Self { path, object }),
            other => Err(refused(&path, "an object", other)),
        }
    }

    /// The path of a key, as errors name it.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of a key, `null` included: the exact spelling first, else any case.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).or_else(|| {
            self.object
                .iter()
                .rfind(|(name, _)| name.eq_ignore_ascii_case(key))
                .map(|(_, value)| value)
        })
    }

    /// The value of a key; `null` counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.raw(key).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, SpecError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| refused(&self.path(key), expected, value)),
        }
    }

    /// A string; the empty string counts as absent, as Go's zero value does.
    pub(crate) fn string(&self, key: &str) -> Result<Option<String>, SpecError> {
        Ok(self
            .read(key, "a string", Value::as_str)?
            .filter(|text| !text.is_empty())
            .map(ToOwned::to_owned))
    }

    /// A boolean, or one of the strings "true" and "false" (CNI-CONF-02).
    pub(crate) fn flag(&self, key: &str) -> Result<bool, SpecError> {
        let flag = self.read(key, "true or false", |value| match value {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        })?;
        Ok(flag.unwrap_or(false))
    }

    /// A whole number that fits `T`.
    pub(crate) fn number<T: TryFrom<u64>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<T>, SpecError> {
        self.read(key, expected, |value| {
            value.as_u64().and_then(|number| T::try_from(number).ok())
        })
    }

    /// A string with a grammar of its own; the empty string counts as absent.
    pub(crate) fn parsed<T: FromStr<Err = SpecError>>(
        &self,
        key: &str,
    ) -> Result<Option<T>, SpecError> {
        self.string(key)?
            .map(|text| parse_at(&self.path(key), &text))
            .transpose()
    }

    /// The elements of a list; absent and `null` are the empty list.
    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value], SpecError> {
        Ok(self
            .read(key, "a list", Value::as_array)?
            .map_or(&[], Vec::as_slice))
    }

    /// A list of strings.
    pub(crate) fn strings(&self, key: &str) -> Result<Vec<String>, SpecError> {
        self.elements(key, |path, value| {
            value
                .as_str()
                .map(ToOwned::to_owned)
                .ok_or_else(|| refused(&path, "a string", value))
        })
    }

    /// A list of strings with a grammar of their own.
    pub(crate) fn parsed_list<T: FromStr<Err = SpecError>>(
        &self,
        key: &str,
    ) -> Result<Vec<T>, SpecError> {
        self.elements(key, |path, value| match value.as_str() {
            Some(text) => parse_at(&path, text),
            None => Err(refused(&path, "a string", value)),
        })
    }

    /// A list of objects.
    pub(crate) fn objects<T>(
        &self,
        key: &str,
        mut read: impl FnMut(&Self) -> Result<T, SpecError>,
    ) -> Result<Vec<T>, SpecError> {
        self.elements(key, |path, value| read(&Self::at(path, value)?))
    }

    /// A list of anything; `read` gets the path of each element.
    pub(crate) fn elements<T>(
        &self,
        key: &str,
        mut read: impl FnMut(String, &'a Value) -> Result<T, SpecError>,
    ) -> Result<Vec<T>, SpecError> {
        self.list(key)?
            .iter()
            .enumerate()
            .map(|(index, value)| read(format!("{}[{index}]", self.path(key)), value))
            .collect()
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>, SpecError> {
        self.get(key)
            .map(|value| Self::at(self.path(key), value))
            .transpose()
    }

    /// A required value, or the error that says it is missing.
    pub(crate) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, SpecError> {
        value.ok_or_else(|| SpecError::FieldMissing {
            path: self.path(key),
        })
    }

    pub(crate) fn object_map(&self) -> &'a Map<String, Value> {
        self.object
    }
}

/// Reads a string with a grammar, and says where it stood when it is wrong.
pub(crate) fn parse_at<T: FromStr<Err = SpecError>>(
    path: &str,
    text: &str,
) -> Result<T, SpecError> {
    text.parse().map_err(|source| SpecError::FieldValue {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

/// The error for a value of the wrong type or out of range.
pub(crate) fn refused(path: &str, expected: &'static str, found: &Value) -> SpecError {
    let text = found.to_string();
    let found = match text.char_indices().nth(QUOTE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    };
    SpecError::FieldType {
        path: path.to_owned(),
        expected,
        found,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exact_spelling_wins_over_another_case() {
        let value = json!({"bandWidth": 1, "bandwidth": 2, "BANDWIDTH": 3});
        let fields = Fields::root(&value, "an object").unwrap();
        assert_eq!(fields.get("bandwidth"), Some(&json!(2)));
        assert_eq!(fields.get("mac"), None);
    }

    #[test]
    fn errors_name_the_path_and_quote_the_value() {
        let value = json!({"runtimeConfig": {"Ips": ["10.0.0.1", "nonsense"], "n": -1}});
        let fields = Fields::root(&value, "an object").unwrap();
        let inner = fields.object("RUNTIMECONFIG").unwrap().unwrap();
        let error = inner.parsed_list::<crate::IpRequest>("ips").unwrap_err();
        assert!(
            error.to_string().starts_with("`RUNTIMECONFIG.ips[1]`"),
            "{error}"
        );
        let error = inner.number::<u64>("n", "a number of bits").unwrap_err();
        assert!(error.to_string().contains("-1"), "{error}");
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let error = refused("x", "a list", &json!("ä".repeat(200)));
        assert!(error.to_string().contains('…'));
        assert!(error.to_string().len() < 200);
    }

    #[test]
    fn flags_may_be_quoted_cni_conf_02() {
        let value = json!({"a": true, "b": "true", "c": "False", "d": null, "e": "yes", "f": 1});
        let fields = Fields::root(&value, "an object").unwrap();
        let read = |key| fields.flag(key).ok();
        assert_eq!(
            ["a", "b", "c", "d", "e", "f", "g"].map(read),
            [
                Some(true),
                Some(true),
                Some(false),
                Some(false),
                None,
                None,
                Some(false)
            ]
        );
        proof::of!("CNI-CONF-02");
    }
}
