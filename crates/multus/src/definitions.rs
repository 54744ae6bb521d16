//! NetworkAttachmentDefinitions of a cluster, as they are exported from it.

use std::collections::BTreeMap;

use api::nad::{Definition, DefinitionError, Meaning, NetworkDefinition, read_definition};
use api::{NetworkAttachmentDefinition, check_label, check_subdomain};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ImportError;
use crate::read::{HIDDEN, few, is_secret, quoted, shortened, shown};
use crate::report::{Finding, Outcome};

const API_VERSION: &str = "k8s.cni.cncf.io/v1";
const KIND: &str = "NetworkAttachmentDefinition";
/// Plugins that read pods' lists themselves.
pub(crate) const MULTUS: [&str; 2] = ["multus", "multus-shim"];

/// Definitions by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    by_name: BTreeMap<(String, String), Known>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    annotations: BTreeMap<String, String>,
    config: String,
    /// Fields of `spec` that the standard does not have.
    unknown: Vec<(String, String)>,
}

impl Definitions {
    /// Adds those of a text: documents of YAML or JSON, each an object or a List.
    ///
    /// # Errors
    /// Not such a text, another kind in it, or a name that was there before.
    pub fn add(&mut self, source_name: &str, text: &str) -> Result<(), ImportError> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| ImportError::NotYaml {
                source_name: source_name.to_owned(),
                reason: error.without_snippet().to_string(),
            })?;
        for (index, document) in documents.into_iter().enumerate() {
            let place = format!("{source_name}: document {}", index + 1);
            let is_list = document["kind"].as_str().is_some_and(|kind| {
                kind == "List" || kind.strip_suffix("List").is_some_and(|kind| kind == KIND)
            });
            match document.get("items") {
                Some(Value::Array(items)) if is_list => {
                    for (index, item) in items.iter().enumerate() {
                        self.add_one(&format!("{place}, items[{index}]"), item)?;
                    }
                }
                _ if document.is_null() => {}
                _ => self.add_one(&place, &document)?,
            }
        }
        Ok(())
    }

    fn add_one(&mut self, place: &str, object: &Value) -> Result<(), ImportError> {
        let not = |reason: String| ImportError::NotADefinition {
            place: place.to_owned(),
            reason,
        };
        for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let found = &object[key];
            if *found != expected {
                return Err(not(format!("{key} is {}", shown(&found.to_string()))));
            }
        }
        let read: NetworkAttachmentDefinition = from(object).map_err(not)?;
        let name = read.metadata.name.unwrap_or_default();
        check_subdomain(&name).map_err(|error| not(format!("metadata.name: {error}")))?;
        let namespace = read.metadata.namespace;
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        check_label(&namespace).map_err(|error| not(format!("metadata.namespace: {error}")))?;
        let fields = object["spec"].as_object().into_iter().flatten();
        let unknown = fields
            .filter(|(key, _)| *key != "config")
            .map(|(key, value)| (key.clone(), value.to_string()));
        let unknown: Vec<(String, String)> = unknown.collect();
        few(&format!("{place}: spec"), unknown.len())?;
        let known = Known {
            annotations: read.metadata.annotations.unwrap_or_default(),
            config: read.spec.config,
            unknown,
        };
        let key = (namespace, name);
        if self.by_name.contains_key(&key) {
            let (namespace, name) = key;
            return Err(ImportError::Twice {
                place: place.to_owned(),
                namespace,
                name,
            });
        }
        self.by_name.insert(key, known);
        Ok(())
    }

    /// Returns the meaning of a definition, if it is there.
    pub(crate) fn find(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<Result<NetworkDefinition, DefinitionError>> {
        let key = (namespace.to_owned(), name.to_owned());
        let known = self.by_name.get(&key)?;
        Some(known.read(namespace, name))
    }

    /// Tells of each definition, and of each field that podnet does not read.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for ((namespace, name), known) in &self.by_name {
            let path = format!("NetworkAttachmentDefinition {namespace}/{name}");
            let (outcome, text) = judge(known.read(namespace, name));
            findings.push(Finding {
                field: path.clone(),
                value: shown(&known.config),
                outcome,
                text,
            });
            let unknown = known.unknown.iter().map(|(key, value)| Finding {
                field: format!("{path}: spec.{}", shortened(key)),
                value: if is_secret(key) {
                    HIDDEN.to_owned()
                } else {
                    shown(value)
                },
                outcome: Outcome::NotCarried,
                text: "the standard has no such field, and podnet does not read it".to_owned(),
            });
            findings.extend(unknown);
        }
        findings
    }
}

impl Known {
    fn read(&self, namespace: &str, name: &str) -> Result<NetworkDefinition, DefinitionError> {
        read_definition(&Definition {
            namespace,
            name,
            annotations: &self.annotations,
            config: &self.config,
        })
    }
}

fn from<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    serde_json::from_value(object.clone()).map_err(|error| error.to_string())
}

fn judge(read: Result<NetworkDefinition, DefinitionError>) -> (Outcome, String) {
    let meaning = match read {
        Ok(definition) => definition.meaning,
        Err(error) => {
            let text = format!("pods that list it fail: {}", error.problem);
            return (Outcome::NotCarried, text);
        }
    };
    match meaning {
        Meaning::Own(_) => (
            Outcome::NeedsNothing,
            "the object stays as it is: it names a network of podnet already".to_owned(),
        ),
        Meaning::ByName(network) => (
            Outcome::ByHand,
            format!(
                "the object stays as it is; copy the configuration named {network} from confDir to --cni-conf-dir, \
                 so that it comes after the default network's by name"
            ),
        ),
        Meaning::Delegate(chain) => {
            let plugins: Vec<&str> = chain.plugins.iter().map(|it| &*it.plugin_type).collect();
            let names = shortened(&plugins.join(", "));
            if MULTUS.iter().any(|plugin| chain.leads_to(plugin)) {
                let text = format!(
                    "the plugins {} have Multus among them, which would read the pod's list once more: \
                     remove it from the object",
                    quoted(&names)
                );
                return (Outcome::ByHand, text);
            }
            let text = format!(
                "the object stays as it is: podnet calls its plugins ({names}) with the same configuration"
            );
            (Outcome::NeedsNothing, text)
        }
    }
}
