//! Parse `labels`: labels of the pod where no cluster knows them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::SpecError;
use crate::fields::{Fields, refused};

/// The most labels of one configuration.
pub const LABELS_MAX: usize = 64;

/// Longest prefix of a key, bytes (RFC 1123 subdomain).
const PREFIX_MAX: usize = 253;
/// Longest name in a key, and longest value, bytes.
const NAME_MAX: usize = 63;

const KEY: &str = "an object with keys as app or example.org/app: up to 63 letters, digits, `-`, `_` \
                   and `.`, a letter or digit at both ends, after the name of a domain and `/` if any";
const VALUE: &str = "a text of up to 63 letters, digits, `-`, `_` and `.`, a letter or digit at both \
                     ends, or the empty one";

/// Reads labels by the syntax of Kubernetes; absent and `null` are none.
///
/// # Errors
/// [`SpecError::FieldType`] with the key, and what to write instead.
pub(super) fn labels(fields: &Fields<'_>) -> Result<BTreeMap<String, String>, SpecError> {
    let Some(object) = fields.object("labels")? else {
        return Ok(BTreeMap::new());
    };
    let path = fields.path("labels");
    let object = object.object_map();
    if object.len() > LABELS_MAX {
        let found = Value::from(object.len());
        return Err(refused(&path, "an object of at most 64 labels", &found));
    }
    let mut labels = BTreeMap::new();
    for (key, value) in object {
        if !is_key(key) {
            return Err(refused(&path, KEY, &Value::from(key.as_str())));
        }
        let text = value.as_str().filter(|text| is_value(text));
        let text = text.ok_or_else(|| refused(&format!("{path}.{key}"), VALUE, value))?;
        labels.insert(key.clone(), text.to_owned());
    }
    Ok(labels)
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    !name.is_empty() && is_value(name) && prefix.is_none_or(is_subdomain)
}

fn is_value(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let at_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= NAME_MAX
        && text.bytes().all(inside)
        && at_end(text.bytes().next())
        && at_end(text.bytes().next_back())
}

fn is_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let outside = part.starts_with('-') || part.ends_with('-');
        !part.is_empty() && !outside && part.bytes().all(inside)
    };
    text.len() <= PREFIX_MAX && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(labels: &Value) -> Result<BTreeMap<String, String>, SpecError> {
        let value = json!({ "labels": labels });
        super::labels(&Fields::root(&value, "an object").unwrap())
    }

    #[test]
    fn labels_that_kubernetes_takes_are_read() {
        let long = "a".repeat(NAME_MAX);
        let labels = json!({
            "app": "web", "a": "", "example.org/Tier_1.x": "B-2", long.clone(): long,
        });
        let kept = read(&labels).unwrap();
        assert_eq!(serde_json::to_value(kept).unwrap(), labels);
        assert!(read(&json!(null)).unwrap().is_empty());
    }

    #[test]
    fn a_wrong_label_is_refused_by_its_key_with_what_to_write() {
        let long = "a".repeat(NAME_MAX + 1);
        for key in [
            "", "/", "a/", "/a", "-a", "a-", "a/b/c", "A.b/c", "a b", "ä", &long,
        ] {
            let error = read(&json!({key: "x"})).unwrap_err().to_string();
            let quoted = key.chars().take(40).collect::<String>();
            assert!(
                error.starts_with("`labels` must be an object with keys as app"),
                "{error}"
            );
            assert!(error.contains(&quoted), "{error}");
        }
        for value in [
            json!("-x"),
            json!("a/b"),
            json!(1),
            json!(null),
            json!(long),
        ] {
            let error = read(&json!({"app": value})).unwrap_err().to_string();
            assert!(
                error.starts_with("`labels.app` must be a text of up to 63"),
                "{error}"
            );
        }
        let error = read(&json!(["app"])).unwrap_err().to_string();
        assert!(error.contains("`labels` must be an object"), "{error}");
    }

    #[test]
    fn a_configuration_has_at_most_64_labels() {
        let of = |count: usize| -> Value {
            let labels = (0..count).map(|number| (format!("l{number}"), json!("x")));
            Value::Object(labels.collect())
        };
        assert_eq!(read(&of(LABELS_MAX)).unwrap().len(), LABELS_MAX);
        let error = read(&of(LABELS_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("at most 64 labels"), "{error}");
        assert!(error.contains("65"), "{error}");
    }
}
