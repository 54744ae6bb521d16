//! Test that `deploy/crds` equals the types.
//!
//! `BLESS=1` (`cargo xtask crdgen`) rewrites it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;

const HEADER: &str = "# Generated from crates/api by `cargo xtask crdgen`. Do not edit.\n";

#[test]
fn definitions_in_deploy_are_those_of_the_types() {
    let files = files();
    let mut stale = Vec::new();
    for (name, text) in &files {
        let path = directory().join(name);
        if fs::read_to_string(&path).unwrap_or_default() != *text {
            if is_blessed() {
                fs::write(&path, text).unwrap();
            } else {
                stale.push(path);
            }
        }
    }
    for stranger in strangers(&files) {
        if is_blessed() {
            fs::remove_file(&stranger).unwrap();
        } else {
            stale.push(stranger);
        }
    }
    assert!(
        stale.is_empty(),
        "{stale:?} are stale, or of no kind: run `cargo xtask crdgen`"
    );
}

#[test]
fn every_definition_has_a_file_of_its_own() {
    let files = files();
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
    for ((name, text), definition) in files().into_iter().zip(definitions) {
        assert!(text.starts_with(HEADER), "{name}");
        let mut meant = serde_json::to_value(definition).unwrap();
        whole_numbers(&mut meant);
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(written, meant, "{name}");
    }
}

#[test]
fn a_limit_is_written_without_a_fraction() {
    let text = yaml(serde_json::json!({"maximum": 1e15, "minimum": 68.0, "half": 0.5}));
    assert_eq!(text, "half: 0.5\nmaximum: 1000000000000000\nminimum: 68\n");
}

fn is_blessed() -> bool {
    env::var_os("BLESS").is_some()
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

/// Name and content of every file.
fn files() -> Vec<(String, String)> {
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
            let text = yaml(serde_json::to_value(definition).expect("JSON"));
            (format!("{name}.yaml"), format!("{HEADER}{text}"))
        })
        .collect()
}

/// Files in the directory that none of the definitions has.
fn strangers(files: &[(String, String)]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory()).expect("deploy/crds");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let is_known = |path: &Path| files.iter().any(|(name, _)| path.ends_with(name));
    paths.filter(|path| !is_known(path)).collect()
}

fn yaml(mut value: Value) -> String {
    whole_numbers(&mut value);
    let options = serde_saphyr::ser_options! {
        // Rules and patterns stay on one line, as they are looked for and copied.
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(&value, options).expect("YAML")
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
