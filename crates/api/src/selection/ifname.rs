//! Names of the interfaces inside a pod.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A name Linux takes for an interface (NPWG §4.1.2.1.5, KEP-3698 `interfaceName`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

/// Which rule of interface names a text breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not an interface name: {rule}; write one as net1")]
pub struct InterfaceNameError {
    /// The text as given.
    pub text: String,
    /// The rule, as the end of a sentence.
    pub rule: &'static str,
}

impl InterfaceName {
    /// Longest name, bytes: `IFNAMSIZ` (linux/if.h) without the terminating zero.
    pub const MAX: usize = 15;

    /// Checks a name as the kernel (`dev_valid_name`) and CNI do (CNI-ENV-03).
    ///
    /// The kernel's check is in net/core/dev.c; CNI bans `:`. `lo` is refused: every pod has it already.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn new(text: impl Into<String>) -> Result<Self, InterfaceNameError> {
        let text = text.into();
        match broken_rule(&text) {
            None => Ok(Self(text)),
            Some(rule) => Err(InterfaceNameError { text, rule }),
        }
    }

    /// Returns the interface that a runtime asks for, `eth0` (CNI-ADD-09).
    ///
    /// containerd knows no other.
    #[must_use]
    pub fn primary() -> Self {
        Self("eth0".to_owned())
    }

    /// `net<number>`, the names that are handed out.
    pub(super) fn generated(number: usize) -> Self {
        Self(format!("net{number}"))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn broken_rule(text: &str) -> Option<&'static str> {
    // The kernel's isspace() goes by bytes and counts 0xa0 (lib/ctype.c).
    let is_space = text.chars().any(char::is_whitespace) || text.as_bytes().contains(&0xa0);
    if text.is_empty() {
        Some("it is empty")
    } else if text.len() > InterfaceName::MAX {
        Some("it is longer than 15 bytes")
    } else if text == "." || text == ".." {
        Some("`.` and `..` are reserved")
    } else if text == "lo" {
        Some("every pod has its loopback interface already")
    } else if text.contains('/') {
        Some("it contains `/`")
    } else if text.contains(':') {
        Some("it contains `:`")
    } else if text.contains('%') {
        Some("it contains `%`, a placeholder for a number to the kernel")
    } else if is_space {
        Some("it contains white space")
    } else if text.chars().any(char::is_control) {
        Some("it contains a control character")
    } else {
        None
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for InterfaceName {
    type Err = InterfaceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = InterfaceNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl From<InterfaceName> for String {
    fn from(name: InterfaceName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPWG-4.1.2.1.5, KEP-POD-05: what Linux refuses is refused, with the rule.
    #[test]
    fn each_broken_rule_is_named() {
        for (bad, rule) in [
            ("", "empty"),
            ("0123456789abcdef", "15 bytes"),
            ("ääääääää", "15 bytes"),
            (".", "reserved"),
            ("..", "reserved"),
            ("lo", "loopback"),
            ("a/b", "`/`"),
            ("eth0:1", "`:`"),
            ("eth%d", "`%`"),
            ("a b", "white space"),
            ("a\n", "white space"),
            ("a\u{e0}", "white space"),
            ("a\0b", "control"),
        ] {
            let error = InterfaceName::new(bad).unwrap_err().to_string();
            assert!(error.contains(rule), "{bad:?}: {error}");
        }
        proof::of!("NPWG-4.1.2.1.5", "KEP-POD-05");
    }

    /// NPWG-4.1.2.1.5: laxer than a DNS label, upper case and dots are fine to Linux.
    #[test]
    fn names_linux_takes_are_taken() {
        for good in ["eth0", "net1", "Eth-0", "a", "...", "0123456789abcde", "ä"] {
            assert_eq!(InterfaceName::new(good).unwrap().as_str(), good);
        }
        proof::of!("NPWG-4.1.2.1.5");
    }
}
