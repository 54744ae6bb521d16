//! `cargo xtask crdgen`: `deploy/crds`, generated from the types in `crates/api`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::step::say;
use crate::workspace;

/// Where the definitions are, from the root of the repository.
const DIRECTORY: &str = "deploy/crds";

const HEADER: &str = "# Generated from crates/api by `cargo xtask crdgen`. Do not edit.\n";

#[derive(clap::Args)]
pub(crate) struct Options {}

/// Writes every definition anew, and removes files that are of no kind any more.
pub(crate) fn run(_: &Options) -> Result<()> {
    let directory = workspace::root().join(DIRECTORY);
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    for stranger in strangers()? {
        fs::remove_file(&stranger).with_context(|| format!("removing {}", stranger.display()))?;
        say(format!("removed {}", stranger.display()));
    }
    for (name, text) in files()? {
        let path = directory.join(&name);
        if fs::read_to_string(&path).unwrap_or_default() != text {
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            say(format!("wrote {DIRECTORY}/{name}"));
        }
    }
    Ok(())
}

/// One line for each file that `run` would change.
pub(crate) fn check() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (name, text) in files()? {
        let path = workspace::root().join(DIRECTORY).join(&name);
        if fs::read_to_string(&path).unwrap_or_default() != text {
            findings.push(format!(
                "{DIRECTORY}/{name}: stale, run `cargo xtask crdgen`"
            ));
        }
    }
    for stranger in strangers()? {
        let name = stranger.file_name().unwrap_or_default().to_string_lossy();
        findings.push(format!(
            "{DIRECTORY}/{name}: defines no kind of crates/api, run `cargo xtask crdgen`"
        ));
    }
    Ok(findings)
}

/// Name and content of every file.
fn files() -> Result<Vec<(String, String)>> {
    let own = api::own_definitions().into_iter().map(|definition| {
        let name = definition.metadata.name.clone().unwrap_or_default();
        (name, definition)
    });
    // The standard's own names for these files: its plural, without the group.
    let standard = api::standard_definitions()
        .into_iter()
        .map(|definition| (definition.spec.names.plural.clone(), definition));
    own.chain(standard)
        .map(|(name, definition)| {
            let text = yaml(serde_json::to_value(definition)?)
                .with_context(|| format!("writing {name} as YAML"))?;
            Ok((format!("{name}.yaml"), format!("{HEADER}{text}")))
        })
        .collect()
}

/// Files in the directory that none of the definitions has.
fn strangers() -> Result<Vec<PathBuf>> {
    let directory = workspace::root().join(DIRECTORY);
    let names: Vec<String> = files()?.into_iter().map(|(name, _)| name).collect();
    let Ok(entries) = fs::read_dir(&directory) else {
        return Ok(Vec::new());
    };
    let mut strangers = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        let name = entry.file_name();
        if !names.iter().any(|known| *known == *name.to_string_lossy()) {
            strangers.push(entry.path());
        }
    }
    Ok(strangers)
}

fn yaml(mut value: Value) -> Result<String> {
    whole_numbers(&mut value);
    let options = serde_saphyr::ser_options! {
        // Rules and patterns stay on one line, as they are looked for and copied.
        prefer_block_scalars: false,
    };
    Ok(serde_saphyr::to_string_with_options(&value, options)?)
}

/// Limits are floats in Kubernetes' types; people read `65521`, not `65521.0`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Number(number) => {
            let text = number.to_string();
            if let Some(whole) = text
                .strip_suffix(".0")
                .and_then(|text| text.parse::<i64>().ok())
            {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_definition_has_a_file_of_its_own() {
        let files = files().unwrap();
        let names: BTreeSet<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), files.len());
        for name in [
            "podnetworks.podnet.dev.yaml",
            "network-attachment-definitions.yaml",
        ] {
            assert!(names.contains(name), "{names:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back_as_the_definition() {
        let mut definitions = api::own_definitions();
        definitions.extend(api::standard_definitions());
        for ((name, text), definition) in files().unwrap().into_iter().zip(definitions) {
            assert!(text.starts_with(HEADER), "{name}");
            let mut meant = serde_json::to_value(definition).unwrap();
            whole_numbers(&mut meant);
            let written: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(written, meant, "{name}");
        }
    }

    #[test]
    fn a_limit_is_written_without_a_fraction() {
        let text =
            yaml(serde_json::json!({"maximum": 1e15, "minimum": 68.0, "half": 0.5})).unwrap();
        assert_eq!(text, "half: 0.5\nmaximum: 1000000000000000\nminimum: 68\n");
    }
}
