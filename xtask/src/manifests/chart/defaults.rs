//! Compare the chart's values with the manifests, and with their schema.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use super::seams::{self, Change};
use super::{FOLDER, block_value, documents, read};

/// Name that every chart's values may have, for charts that contain it.
const GLOBAL: &str = "global";

/// Lists defaults that are not the manifests', and values without a description.
pub(super) fn check(values: &Value, schema: &Value) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for file in seams::files()? {
        let text = read(&file.source)?;
        for document in &file.documents {
            let base = documents(&text)
                .into_iter()
                .find(|it| it.contains(&format!("\nkind: {}\n", document.kind)))
                .with_context(|| format!("{}: no {}", file.source, document.kind))?;
            for change in &document.changes {
                let Some((at, wanted)) = manifest(base, change)? else {
                    continue;
                };
                let found = value(values, &at);
                if found.as_ref() != Some(&wanted) && seen.insert(at.clone()) {
                    let found = found.map_or("nothing".to_owned(), |it| it.to_string());
                    findings.push(format!(
                        "{FOLDER}/values.yaml: {at} is {found}, and {} has {wanted}: write that",
                        file.source
                    ));
                }
            }
        }
    }
    described(values, schema, "", &mut findings);
    Ok(findings)
}

/// The value that a change has in the manifests, and its name.
fn manifest(base: &str, change: &Change) -> Result<Option<(String, Value)>> {
    Ok(match change {
        Change::Within { text, value, .. } => Some((value.clone(), text.as_str().into())),
        Change::Block { block, value } => Some((value.clone(), block_value(base, block)?)),
        Change::Line { .. } | Change::After { .. } | Change::Lines { .. } => None,
    })
}

/// The value of that name, as it gets into a line.
fn value(values: &Value, at: &str) -> Option<Value> {
    let mut found = values;
    for name in at.split('.') {
        found = found.get(name)?;
    }
    Some(match found {
        Value::Number(number) => number.to_string().into(),
        Value::Object(image) if at == "image" => {
            let part = |name: &str| image.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{}:{}", part("repository"), part("tag")).into()
        }
        other => other.clone(),
    })
}

/// Every value has a description, and no object of known values takes others.
fn described(values: &Value, schema: &Value, at: &str, findings: &mut Vec<String>) {
    let Some(known) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    let file = format!("{FOLDER}/values.schema.json");
    if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        findings.push(format!(
            "{file}: {at}: a misspelt value passes: write \"additionalProperties\": false"
        ));
    }
    let names: BTreeSet<&str> = known.keys().map(String::as_str).collect();
    let given = values.as_object();
    let given: BTreeSet<&str> = given
        .into_iter()
        .flat_map(|given| given.keys().map(String::as_str))
        .collect();
    let ours = |name: &&&str| **name != GLOBAL;
    for name in names.symmetric_difference(&given).filter(ours) {
        findings.push(format!(
            "{FOLDER}: {at}.{name} is in only one of values.yaml and values.schema.json"
        ));
    }
    for (name, schema) in known {
        let at = format!("{at}.{name}");
        if !schema["description"].is_string() && schema.get("$ref").is_none() {
            findings.push(format!("{file}: {at} has no description"));
        }
        described(&values[name], schema, &at, findings);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifests::chart::{read_schema, read_values};

    #[test]
    fn every_default_of_the_chart_is_that_of_the_manifests() {
        assert_eq!(
            check(&read_values().unwrap(), &read_schema().unwrap()).unwrap(),
            [""; 0]
        );
    }

    #[test]
    fn another_default_is_found_and_named_with_the_manifest_that_has_it() {
        let mut values = read_values().unwrap();
        values["agent"]["resources"]["limits"]["memory"] = json!("1Gi");
        values["maxAttachmentsPerPod"] = json!(33);
        values["image"]["tag"] = json!("latest");
        let found = check(&values, &read_schema().unwrap()).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        let found = found.join("\n");
        for words in [
            "agent.resources is {",
            "deploy/base/agent.yaml has {\"limits\":{\"memory\":\"512Mi\"}",
            "maxAttachmentsPerPod is \"33\"",
            "image is \"localhost/podnet:latest\"",
        ] {
            assert!(found.contains(words), "{words}: {found}");
        }
    }

    #[test]
    fn a_value_without_a_schema_and_an_object_that_takes_any_name_are_found() {
        let (mut values, mut schema) = (read_values().unwrap(), read_schema().unwrap());
        values["cni"]["extra"] = json!(1);
        schema["properties"]["egress"]["additionalProperties"] = json!(true);
        let found = check(&values, &schema).unwrap().join("\n");
        for words in [".cni.extra is in only one", ".egress: a misspelt value"] {
            assert!(found.contains(words), "{found}");
        }
    }
}
