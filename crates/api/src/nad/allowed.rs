//! Which plugins a definition may have executed.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::{
    chain::{PluginChain, wrong_type},
    problem::DefinitionProblem,
};
use crate::json::{RawJson, RawObject, quote};

/// Keys under which plugins keep configurations of plugins that they execute.
const NESTED: [&str; 4] = ["delegate", "delegates", "ipam", "plugins"];
/// Most configurations inside each other that are followed.
const DEPTH: usize = 8;

/// The plugins that a `NetworkAttachmentDefinition` may name, by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedPlugins {
    /// Every plugin on the node.
    #[default]
    All,
    /// These.
    Listed(BTreeSet<String>),
}

impl AllowedPlugins {
    /// Checks every plugin of a chain, and those that its plugins are told to execute.
    ///
    /// # Errors
    /// For the first plugin that is not allowed, or for configurations too deep inside each other.
    pub fn check(&self, chain: &PluginChain) -> Result<(), DefinitionProblem> {
        let Self::Listed(listed) = self else {
            return Ok(());
        };
        for (path, found) in chain.plugin_types()? {
            if !listed.contains(&found) {
                let allowed: Vec<&str> = listed.iter().map(String::as_str).collect();
                return Err(DefinitionProblem::PluginNotAllowed {
                    path,
                    found: quote(&found),
                    allowed: if allowed.is_empty() {
                        "none".to_owned()
                    } else {
                        allowed.join(", ")
                    },
                });
            }
        }
        Ok(())
    }
}

impl PluginChain {
    /// Lists path and value of every `type`, of the chain's plugins and inside them.
    ///
    /// The latter are those whose configurations are under `delegate`, `delegates`, `ipam` or `plugins`.
    ///
    /// Plugins written in Go read keys without regard to case, and all of a key that is there twice, so
    /// each spelling counts. A plugin that hides others elsewhere must not be allowed at all.
    ///
    /// # Errors
    /// Configurations too deep inside each other, and those that cannot be read here: Go takes U+FFFD for
    /// half of a surrogate pair, and so would read one in which Rust sees nothing.
    pub fn plugin_types(&self) -> Result<Vec<(String, String)>, DefinitionProblem> {
        let mut found = Vec::new();
        for (index, plugin) in self.plugins.iter().enumerate() {
            let prefix = if self.is_list {
                format!("plugins[{index}].")
            } else {
                String::new()
            };
            found.push((format!("{prefix}type"), plugin.plugin_type.clone()));
            collect(&plugin.config, &prefix, 0, &mut found)?;
        }
        Ok(found)
    }

    /// Reports whether a plugin of this type is called, by the chain or its plugins.
    ///
    /// True also where that cannot be found out.
    #[must_use]
    pub fn leads_to(&self, plugin_type: &str) -> bool {
        let types = self.plugin_types();
        types.map_or(true, |types| {
            types.iter().any(|(_, found)| found == plugin_type)
        })
    }
}

fn collect(
    config: &RawObject,
    prefix: &str,
    depth: usize,
    found: &mut Vec<(String, String)>,
) -> Result<(), DefinitionProblem> {
    if depth > DEPTH {
        let path = prefix.trim_end_matches('.').to_owned();
        return Err(DefinitionProblem::TooDeep { path, most: DEPTH });
    }
    for (key, value) in config.iter() {
        let path = format!("{prefix}{key}");
        if is_key(key, "type") {
            let text: Option<String> = of_kind(value, '"', &path)?;
            found.extend(text.map(|text| (path, text)));
        } else if NESTED.iter().any(|nested| is_key(key, nested)) {
            let several: Option<Vec<RawJson>> = of_kind(value, '[', &path)?;
            for (index, one) in several.iter().flatten().enumerate() {
                inside(one, format!("{path}[{index}]"), depth, found)?;
            }
            inside(value, path, depth, found)?;
        }
    }
    Ok(())
}

fn inside(
    value: &RawJson,
    path: String,
    depth: usize,
    found: &mut Vec<(String, String)>,
) -> Result<(), DefinitionProblem> {
    match of_kind::<RawObject>(value, '{', &path)? {
        Some(config) => collect(&config, &(path + "."), depth + 1, found),
        None => Ok(()),
    }
}

/// Reads the value if it begins like one of this kind.
///
/// Plugins ignore a value of another kind.
fn of_kind<T: DeserializeOwned>(
    value: &RawJson,
    begin: char,
    path: &str,
) -> Result<Option<T>, DefinitionProblem> {
    if !value.get().starts_with(begin) {
        return Ok(None);
    }
    let read = value.read().map(Some);
    read.map_err(|_| {
        wrong_type(
            path.to_owned(),
            value,
            "text without halves of surrogate pairs",
        )
    })
}

/// Reports whether Go's `encoding/json` takes one key for the other.
///
/// It folds case as Unicode does, by which two more characters are letters of ASCII.
fn is_key(found: &str, key: &str) -> bool {
    let folded = found.chars().map(|one| match one {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        one => one.to_ascii_lowercase(),
    });
    folded.eq(key.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: &[&str], config: &str) -> Result<(), String> {
        let chain = PluginChain::parse(config, "lan").unwrap();
        let listed = allowed.iter().map(|one| (*one).to_owned()).collect();
        let checked = AllowedPlugins::Listed(listed).check(&chain);
        checked.map_err(|problem| problem.to_string())
    }

    /// ATT-07b: plugins at every level, in any spelling that a plugin would understand.
    #[test]
    fn every_plugin_that_a_configuration_names_must_be_allowed() {
        let allowed = ["bridge", "host-local", "flannel", "tuning"];
        for good in [
            r#"{"type": "bridge"}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local"}, "name": "x"}"#,
            r#"{"plugins": [{"type": "bridge", "ipam": {}}, {"type": "tuning", "mac": "x"}]}"#,
            r#"{"type": "flannel", "delegate": {"type": "bridge", "ipam": {"type": "host-local"}}}"#,
        ] {
            assert_eq!(check(&allowed, good), Ok(()), "{good}");
        }
        for (bad, path) in [
            (r#"{"type": "evil"}"#, "type"),
            (
                r#"{"plugins": [{"type": "tuning"}, {"type": "evil"}]}"#,
                "plugins[1].type",
            ),
            (
                r#"{"type": "bridge", "ipam": {"type": "evil"}}"#,
                "ipam.type",
            ),
            (
                r#"{"type": "bridge", "IPAM": {"Type": "evil"}}"#,
                "IPAM.Type",
            ),
            (
                r#"{"type": "bridge", "ipam": {"type": "evil"}, "ipam": {"type": "host-local"}}"#,
                "ipam.type",
            ),
            (
                r#"{"type": "bridge", "ipam": {"type": "evil", "type": "host-local"}}"#,
                "ipam.type",
            ),
            (
                r#"{"type": "flannel", "delegate": {"type": "bridge", "ipam": {"type": "evil"}}}"#,
                "delegate.ipam.type",
            ),
            (
                r#"{"plugins": [{"type": "flannel", "delegate": {"plugin\u017f": [{"type": "evil"}]}}]}"#,
                "plugins[0].delegate.plugin\u{17f}[0].type",
            ),
            (
                r#"{"type": "flannel", "delegates": [{"type": "bridge"}, {"type": "evil"}]}"#,
                "delegates[1].type",
            ),
        ] {
            let error = check(&allowed, bad).unwrap_err();
            let start = format!("{path} is \"evil\"");
            assert!(error.starts_with(&start), "{bad}: {error}");
            assert!(
                error.contains("--delegates-allowed") && error.contains("bridge, flannel"),
                "{error}"
            );
            let chain = PluginChain::parse(bad, "lan").unwrap();
            assert_eq!(AllowedPlugins::All.check(&chain), Ok(()));
            assert!(chain.leads_to("evil") && !chain.leads_to("podnet"));
        }
        let error = check(&[], r#"{"type": "bridge"}"#).unwrap_err();
        assert!(error.contains("none"), "{error}");
        proof::of!("ATT-07b");
    }

    /// ATT-07b: Go reads half of a surrogate pair as U+FFFD, and Rust does not read it.
    #[test]
    fn a_configuration_that_cannot_be_read_hides_no_plugin() {
        let allowed = ["bridge", "host-local", "flannel"];
        for (bad, path) in [
            (
                r#"{"type": "bridge", "ipam": {"type": "evil", "\ud800": 1}}"#,
                "ipam",
            ),
            (
                r#"{"type": "bridge", "ipam": {"type": "evil\udc00"}}"#,
                "ipam.type",
            ),
            (
                r#"{"type": "flannel", "delegates": [{"type": "bridge"}, {"\ud83d": 0, "type": "evil"}]}"#,
                "delegates[1]",
            ),
            (
                r#"{"plugins": [{"type": "flannel", "delegate": {"ipam": {"type": "evil", "\udfff": 1}}}]}"#,
                "plugins[0].delegate.ipam",
            ),
        ] {
            let error = check(&allowed, bad).expect_err(bad);
            let start = format!("{path} is ");
            assert!(error.starts_with(&start), "{bad}: {error}");
            assert!(PluginChain::parse(bad, "lan").unwrap().leads_to("podnet"));
        }
        // Of a value that is no configuration no plugin makes one.
        let other = r#"{"type": "bridge", "ipam": null, "delegate": "\ud800", "delegates": [1]}"#;
        assert_eq!(check(&allowed, other), Ok(()));
        proof::of!("ATT-07b");
    }

    /// ATT-07b: a configuration that cannot be followed to its end is refused.
    #[test]
    fn configurations_inside_each_other_have_a_largest_depth() {
        let nested = |depth: usize| {
            let (open, close) = (r#"{"type": "a", "delegate": "#, "}");
            format!(
                "{}{{\"type\": \"a\"}}{}",
                open.repeat(depth),
                close.repeat(depth)
            )
        };
        assert_eq!(check(&["a"], &nested(DEPTH)), Ok(()));
        for depth in [DEPTH + 1, 100, 2_000] {
            let error = check(&["a"], &nested(depth)).unwrap_err();
            assert!(error.contains("more than 8"), "{error}");
        }
        proof::of!("ATT-07b");
    }
}
