//! CNI's own identity of an attachment: container and interface name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::SpecError;

/// `CNI_CONTAINERID`: alphanumeric, then also `_`, `.`, `-` (CNI-ENV-02).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(String);

impl ContainerId {
    /// Checks the grammar of CNI SPEC "Parameters".
    ///
    /// # Errors
    /// [`SpecError::ContainerId`] (code 4) for anything outside the grammar, the empty string
    /// included.
    pub fn new(text: impl Into<String>) -> Result<Self, SpecError> {
        let text = text.into();
        if is_cni_name(&text) {
            Ok(Self(text))
        } else {
            Err(SpecError::ContainerId { value: text })
        }
    }

    /// The identifier as the runtime gave it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Matches `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`.
///
/// The rule is that of container identifiers and of network names.
pub(crate) fn is_cni_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// `CNI_IFNAME`: a name Linux accepts for an interface (CNI-ENV-03).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IfName(String);

impl IfName {
    /// Longest name in bytes: `IFNAMSIZ` (linux/if.h) without the terminating zero.
    pub const MAX: usize = 15;

    /// Checks an interface name by the kernel's rules and CNI's ban on `:`.
    ///
    /// The kernel keeps the name as it is (`dev_valid_name`, `dev_prep_valid_name`).
    ///
    /// # Errors
    /// [`SpecError::IfName`] (code 4) naming the broken rule.
    pub fn new(text: impl Into<String>) -> Result<Self, SpecError> {
        let text = text.into();
        let rule = if text.is_empty() {
            "it is empty"
        } else if text.len() > Self::MAX {
            "it is longer than 15 bytes"
        } else if text == "." || text == ".." {
            "`.` and `..` are reserved"
        } else if text.contains('/') {
            "it contains `/`"
        } else if text.contains(':') {
            "it contains `:`"
        } else if text.contains('%') {
            "it contains `%`, a placeholder for a number to the kernel"
        } else if text.chars().any(char::is_whitespace) || text.as_bytes().contains(&0xa0) {
            // The kernel's isspace() goes by bytes and counts 0xa0 (lib/ctype.c).
            "it contains white space"
        } else if text.contains('\0') {
            "it contains a zero byte"
        } else {
            return Ok(Self(text));
        };
        Err(SpecError::IfName { value: text, rule })
    }

    /// The name as the runtime gave it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! string_conversions {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = SpecError;

            fn try_from(text: String) -> Result<Self, SpecError> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = SpecError;

            fn from_str(text: &str) -> Result<Self, SpecError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    )*};
}

string_conversions!(ContainerId, IfName);

/// Identity of an attachment: (`CNI_CONTAINERID`, `CNI_IFNAME`).
///
/// CNI SPEC "Lifecycle".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttachmentKey {
    /// The container; spelled `containerID` in JSON, as GC lists spell it.
    #[serde(rename = "containerID")]
    pub container: ContainerId,
    /// The interface inside the container.
    pub ifname: IfName,
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.ifname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerid_follows_the_grammar_cni_env_02() {
        for good in ["a", "0", "abc-DEF_1.2", "cnitool-77383ca0a0715733ca6f"] {
            assert_eq!(ContainerId::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "", "-a", "_a", ".a", "a/b", "a b", "a\n", "ä", "a:b", "../x",
        ] {
            let error = ContainerId::new(bad).unwrap_err();
            assert_eq!(error.code().0, 4, "{bad:?}");
            assert!(error.to_string().contains("CNI_CONTAINERID"));
        }
        proof::of!("CNI-ENV-02");
    }

    #[test]
    fn each_ifname_rule_is_named_when_broken_cni_env_03() {
        let table = [
            ("", "empty"),
            ("0123456789abcdef", "15 bytes"),
            ("ääääääää", "15 bytes"),
            (".", "reserved"),
            ("..", "reserved"),
            ("a/b", "`/`"),
            ("eth0:1", "`:`"),
            ("a b", "white space"),
            ("a\tb", "white space"),
            ("a\n", "white space"),
            ("a\u{b}b", "white space"),
            ("a\u{e0}", "white space"),
            ("eth%d", "`%`"),
            ("a\0b", "zero byte"),
        ];
        for (bad, rule) in table {
            let error = IfName::new(bad).unwrap_err();
            assert_eq!(error.code().0, 4, "{bad:?}");
            assert!(error.to_string().contains("CNI_IFNAME"), "{bad:?}");
            assert!(error.to_string().contains(rule), "{bad:?}: {error}");
        }
        proof::of!("CNI-ENV-03");
    }

    #[test]
    fn longest_and_odd_but_legal_ifnames_are_accepted() {
        for good in ["0123456789abcde", "a", "...", ".a", "net-1", "a@b", "ä"] {
            assert_eq!(IfName::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn key_reads_and_writes_the_spelling_of_gc_lists() {
        let json = r#"{"containerID":"c1","ifname":"eth0"}"#;
        let key: AttachmentKey = serde_json::from_str(json).unwrap();
        assert_eq!(key.to_string(), "c1/eth0");
        assert_eq!(serde_json::to_string(&key).unwrap(), json);
        assert!(
            serde_json::from_str::<AttachmentKey>(r#"{"containerID":"","ifname":"e"}"#).is_err()
        );
    }
}
