//! Read the names of pods as users write them.

use std::fmt;
use std::str::FromStr;

/// A pod, and maybe an interface in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodRef {
    /// Namespace, when it was written.
    pub(crate) namespace: Option<String>,
    /// Name.
    pub(crate) name: String,
    /// Interface, when it was written.
    pub(crate) interface: Option<String>,
}

impl FromStr for PodRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{what}: write [NAMESPACE/]NAME[:INTERFACE]"));
        let (path, interface) = match text.split_once(':') {
            Some((path, interface)) => (path, Some(interface)),
            None => (text, None),
        };
        let path = path.strip_prefix("pod/").unwrap_or(path);
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, path),
        };
        for part in [Some(name), namespace].into_iter().flatten() {
            // RFC 1123, as Kubernetes has it: nothing in it can be taken for an option.
            let known = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
            let inside = |it: char| known(it) || it == '-' || it == '.';
            if part.is_empty() || !part.starts_with(known) || !part.chars().all(inside) {
                return wrong(&format!("`{part}` is no name of a pod or namespace"));
            }
        }
        // As CNI has it.
        if interface.is_some_and(|it| it.is_empty() || it.len() > 15 || it.contains(['/', ' '])) {
            return wrong("the interface is empty, or no name of one");
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            interface: interface.map(str::to_owned),
        })
    }
}

/// A pod that is there, and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// Name of the node.
    pub(crate) node: String,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<(Option<String>, String, Option<String>), String> {
        let pod: PodRef = text.parse()?;
        Ok((pod.namespace, pod.name, pod.interface))
    }

    #[test]
    fn namespace_and_interface_may_be_left_out() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("a"), Ok((None, "a".to_owned(), None)));
        assert_eq!(parts("pod/a"), Ok((None, "a".to_owned(), None)));
        assert_eq!(
            parts("shop/a-1.b:net1"),
            Ok((some("shop"), "a-1.b".to_owned(), some("net1")))
        );
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_the_form_to_write() {
        for text in [
            "",
            "/a",
            "a/",
            "--all",
            "a b",
            "A",
            "a:",
            "a/b/c",
            "a:0123456789abcdef",
        ] {
            let error = parts(text).unwrap_err();
            assert!(
                error.ends_with("write [NAMESPACE/]NAME[:INTERFACE]"),
                "{text}: {error}"
            );
        }
    }
}
