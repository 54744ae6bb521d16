//! JSON that is passed on unchanged: bytes of values, order of keys.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

/// Longest piece of a refused value quoted in an error, in characters.
const QUOTE: usize = 60;

/// A JSON value with its original bytes.
///
/// So a number is never rounded on its way through (CNI-CONF-07).
#[derive(Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// The value in this text.
    ///
    /// # Errors
    /// The text is not one JSON value.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text of the value, without white space around it.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The value as a `T`.
    ///
    /// # Errors
    /// The value is not a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// True for `null`, which Kubernetes and Go take for an absent value.
    pub(crate) fn is_null(&self) -> bool {
        self.get() == "null"
    }

    /// The value, or the beginning of a long one, as errors quote it.
    pub(crate) fn quote(&self) -> String {
        quote(self.get())
    }
}

/// `text`, or the beginning of a long one.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

impl PartialEq for RawJson {
    /// The same bytes; `1.0` and `1` differ.
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// A JSON object that keeps the order of its keys and the bytes of its values.
///
/// A key can be there twice, as JSON allows (RFC 8259 §4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawObject(Vec<(String, RawJson)>);

impl RawObject {
    /// Keys and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of `key`; the last one where it is there twice, which is Go's rule.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&RawJson> {
        self.0
            .iter()
            .rfind(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// True when there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes `key` out, and gives the value [`RawObject::get`] would give.
    pub fn remove(&mut self, key: &str) -> Option<RawJson> {
        let value = self.get(key).cloned();
        self.0.retain(|(name, _)| name != key);
        value
    }

    /// Gives `key` this value: in its place where it is there, else at the end.
    ///
    /// # Errors
    /// `value` cannot be written as JSON.
    pub fn set(&mut self, key: &str, value: &impl Serialize) -> Result<(), serde_json::Error> {
        let value = RawJson(serde_json::value::to_raw_value(value)?);
        let mut taken = false;
        self.0.retain(|(name, _)| {
            let again = name == key && taken;
            taken |= name == key;
            !again
        });
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
        Ok(())
    }

    /// Returns the first key that is there twice.
    ///
    /// Case makes a difference only in keys with a period, which belong to others.
    pub(crate) fn repeated_key(&self) -> Option<&str> {
        let mut seen = std::collections::BTreeSet::new();
        let mut keys = self.0.iter().map(|(key, _)| key.as_str());
        keys.find(|key| {
            let known_by = if key.contains('.') {
                (*key).to_owned()
            } else {
                key.to_ascii_lowercase()
            };
            !seen.insert(known_by)
        })
    }
}

impl FromIterator<(String, RawJson)> for RawObject {
    fn from_iter<I: IntoIterator<Item = (String, RawJson)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = RawObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(RawObject(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(text: &str) -> RawObject {
        serde_json::from_str(text).unwrap()
    }

    /// CNI-CONF-07: unknown keys go through as they are.
    #[test]
    fn numbers_keep_their_digits_and_keys_their_order() {
        let text = r#"{"z":12345678901234567890123,"a":1.10,"m":{"b": 1e3 ,"a":[1.0]}}"#;
        assert_eq!(serde_json::to_string(&object(text)).unwrap(), text);
        proof::of!("CNI-CONF-07");
    }

    #[test]
    fn a_key_is_replaced_in_its_place_or_added_at_the_end() {
        let mut config = object(r#"{"name":"","type":"x","name":"y"}"#);
        assert_eq!(config.repeated_key(), Some("name"));
        assert_eq!(config.get("name").map(RawJson::get), Some("\"y\""));
        config.set("name", &"blue").unwrap();
        config.set("mtu", &1500).unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(text, r#"{"name":"blue","type":"x","mtu":1500}"#);
        assert_eq!(config.remove("mtu").unwrap().get(), "1500");
        assert_eq!(config.repeated_key(), None);
    }

    #[test]
    fn what_is_not_json_is_refused_at_once() {
        for text in ["", "{", "1 2", "nul", "[1,]", "\u{201c}a\u{201d}"] {
            assert!(RawJson::parse(text).is_err(), "{text:?} was taken");
        }
        assert!(serde_json::from_str::<RawObject>("[]").is_err());
    }

    proptest! {
        #[test]
        fn quoting_never_panics_and_stays_short(text in ".*") {
            prop_assert!(quote(&text).chars().count() <= QUOTE + 1);
        }
    }
}
