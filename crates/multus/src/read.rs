//! JSON in which each key is there once.

use std::collections::BTreeSet;
use std::fmt;

use api::{RawJson, RawObject};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use serde_json::Value;

use crate::error::ImportError;
use crate::fields::Kind;

/// Longest piece of a value that is quoted, in characters.
const QUOTE: usize = 60;
/// Most elements of an array and keys of an object that have a line each.
const ELEMENTS_MAX: usize = 256;
/// Value in place of a secret.
pub(crate) const HIDDEN: &str = "(not shown)";
/// Parts of keys, letters and digits alone, by which a value is secret.
const SECRETS: [&str; 9] = [
    "token",
    "password",
    "passwd",
    "secret",
    "credential",
    "private",
    "apikey",
    "clientkey",
    "certificateauthoritydata",
];

/// An object in which each key is there once, at every depth.
///
/// Go takes the last value of a repeated key, other readers the first: nothing says which was meant.
///
/// # Errors
/// Not a JSON object, or a repeated key. Keys of the outermost object are compared as Multus does, without case.
pub(crate) fn object(text: &str) -> Result<RawObject, ImportError> {
    let wrong = |error: serde_json::Error| ImportError::NotJson {
        reason: error.to_string(),
    };
    // Editors of some systems begin a file with one.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let _: Once = serde_json::from_str(text).map_err(wrong)?;
    let object: RawObject = serde_json::from_str(text).map_err(wrong)?;
    unlike(&object)?;
    Ok(object)
}

/// Refuses keys that differ in their case alone.
pub(crate) fn unlike(object: &RawObject) -> Result<(), ImportError> {
    let mut seen = BTreeSet::new();
    for (key, _) in object.iter() {
        if !seen.insert(key.to_ascii_lowercase()) {
            let reason = format!(
                "the key {} is there twice, in two spellings that Multus takes for one",
                quoted(key)
            );
            return Err(ImportError::NotJson { reason });
        }
    }
    Ok(())
}

/// Refuses more than [`ELEMENTS_MAX`] elements or keys: each would have a line.
pub(crate) fn few(path: &str, found: usize) -> Result<(), ImportError> {
    if found <= ELEMENTS_MAX {
        return Ok(());
    }
    Err(ImportError::TooMany {
        path: path.to_owned(),
        found,
        most: ELEMENTS_MAX,
    })
}

/// Writes a JSON text in one line, shortened, without values of secret keys.
///
/// Reports go into tickets and logs.
pub(crate) fn shown(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            hide(&mut value);
            shortened(&value.to_string())
        }
        Err(_) if text.trim().is_empty() => String::new(),
        Err(_) => format!("{} bytes that are no JSON", text.len()),
    }
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if is_secret(key) && !value.is_null() {
                    *value = HIDDEN.into();
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(hide),
        // A kubeconfig, or another file, where its path belongs.
        Value::String(text) if text.contains('\n') || text.contains("BEGIN ") => {
            *value = HIDDEN.into();
        }
        _ => {}
    }
}

/// True for a key whose value is for nobody's eyes by its name.
pub(crate) fn is_secret(key: &str) -> bool {
    let key: String = key
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|character| character.to_ascii_lowercase())
        .collect();
    SECRETS.iter().any(|word| key.contains(word))
}

/// True for characters that can change how a terminal shows what is around them.
pub(crate) fn is_hostile(character: char) -> bool {
    let reorders = matches!(
        character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    reorders || character.is_control() || ('\u{e0000}'..='\u{e007f}').contains(&character)
}

/// The value as a `T`; nothing for `null`, which Multus takes for an absent one.
///
/// # Errors
/// The value is of another type; with the one that `kind` is.
pub(crate) fn value<T: DeserializeOwned>(
    path: &str,
    raw: &RawJson,
    kind: Kind,
) -> Result<Option<T>, ImportError> {
    if raw.get() == "null" {
        return Ok(None);
    }
    raw.read().map(Some).map_err(|_| ImportError::WrongType {
        path: path.to_owned(),
        found: shown(raw.get()),
        expected: kind.expected(),
    })
}

/// A text in quotes, without control characters, shortened.
pub(crate) fn quoted(text: &str) -> String {
    shortened(&format!("{text:?}"))
}

/// The text in one line, or the beginning of a long one.
pub(crate) fn shortened(text: &str) -> String {
    let line: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|character| !is_hostile(*character))
        .collect();
    match line.char_indices().nth(QUOTE) {
        None => line,
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
    }
}

/// A JSON value of which only this is known: no object in it has a key twice.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Once)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self, A::Error> {
        while elements.next_element::<Once>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                let problem = format!("the key {} is there twice", quoted(&key));
                return Err(A::Error::custom(problem));
            }
            let _: Once = map.next_value()?;
            seen.insert(key);
        }
        Ok(self)
    }
}
