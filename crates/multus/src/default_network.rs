//! The default network: the first delegate, or what `clusterNetwork` names.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use api::nad::{
    Definition, DefinitionProblem, Meaning, NetworkDefinition, NetworkRef, PLUGIN_TYPE,
    PluginChain, read_definition,
};
use api::{RawJson, RawObject, check_subdomain};
use serde_json::json;

use crate::definitions::{Definitions, MULTUS};
use crate::read::shortened;
use crate::report::{File, Outcome, Report};

/// Directory of runtimes for configurations, `--cni-conf-dir` when not given.
pub(crate) const CONF_DIR: &str = "/etc/cni/net.d";
/// Option for another plugin's network.
const DELEGATE: &str = "--default-network=delegate";
/// Option for networks of every pod.
const GIVE: &str = "--default-networks";
/// Keys of a configuration of ours that say no more than which network.
const WHICH: [&str; 4] = ["cniVersion", "name", "type", "podNetwork"];

/// The fate of a field, and the words about it.
pub(crate) type Said = (Outcome, String);

/// Takes over the configuration that is written in `delegates[0]`.
pub(crate) fn first(report: &mut Report, namespace: &str, config: &RawJson) -> Said {
    let read = match delegate(namespace, config, 0) {
        Ok(read) => read,
        Err(problem) => return refused(&problem),
    };
    if matches!(read.meaning, Meaning::Own(_)) {
        let keys: RawObject = config.read().unwrap_or_default();
        let more = keys.iter().map(|(key, _)| key);
        let more: Vec<&str> = more.filter(|key| !WHICH.contains(key)).collect();
        if !more.is_empty() {
            let text = format!(
                "it is a network of podnet, of which an option has no more than the name; {} of its configuration would \
                 be lost: write them into the network's objects, and give --default-network=podnetwork:NAME by hand",
                shortened(&more.join(", "))
            );
            return (Outcome::NotCarried, text);
        }
    }
    carry(report, read, "its first delegate")
}

/// Hands a further delegate over as an object, and names it.
pub(crate) fn further(
    report: &mut Report,
    namespace: &str,
    config: &RawJson,
    index: usize,
) -> (Said, Option<String>) {
    let (name, text) = match delegate(namespace, config, index).map(|read| read.meaning) {
        Ok(Meaning::Delegate(chain)) if leads_to_multus(&chain) => {
            let text =
                "it calls Multus once more, which would read the pod's list again: remove it";
            return ((Outcome::NotCarried, text.to_owned()), None);
        }
        Ok(Meaning::Delegate(chain)) => (chain.name.clone(), chain.config()),
        Ok(Meaning::Own(_)) => (String::new(), config.get().to_owned()),
        // A definition without a configuration has this meaning, and an element is one.
        Ok(Meaning::ByName(name)) => (name, String::new()),
        Err(problem) => return (refused(&problem), None),
    };
    let is_there = |name: &str| {
        report
            .objects
            .iter()
            .any(|it| it["metadata"]["name"] == name)
    };
    let name = match check_subdomain(&name) {
        Ok(()) if !is_there(&name) => name,
        // Of two objects of one name the second would replace the first.
        Ok(()) | Err(_) => format!("multus-delegate-{index}"),
    };
    let target = format!("{namespace}/{name}");
    report.objects.push(json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"config": text},
    }));
    let text = format!("in {GIVE}: apply the object {target} first, because pods fail without it");
    ((Outcome::Carried, text), Some(target))
}

/// Takes over an element of `defaultNetworks`, and names its definition.
pub(crate) fn given(
    namespace: &str,
    name: &str,
    definitions: &Definitions,
) -> (Said, Option<String>) {
    if name.contains('/') || check_subdomain(name).is_err() {
        let text = format!(
            "{GIVE} takes definitions alone: write the configuration into a NetworkAttachmentDefinition of namespace \
             {namespace}, and add that to the option"
        );
        return ((Outcome::ByHand, text), None);
    }
    let target = format!("{namespace}/{name}");
    let said = match definitions.find(namespace, name) {
        Some(Ok(_)) => (Outcome::Carried, format!("in {GIVE} as {target}")),
        Some(Err(error)) => return (refused_definition(&error.problem), None),
        None => {
            let text = format!(
                "in {GIVE} as {target}, and no such definition was given: if the cluster has it, there is nothing to do; \
                 else copy the configuration of that name from confDir to {CONF_DIR}, and make a \
                 NetworkAttachmentDefinition of the name without a configuration first, because pods fail without it"
            );
            (Outcome::ByHand, text)
        }
    };
    (said, Some(target))
}

/// Adds the option for these definitions, where there are any.
pub(crate) fn give(report: &mut Report, targets: &[String]) {
    if !targets.is_empty() {
        report.options.push(format!("{GIVE}={}", targets.join(",")));
    }
}

fn refused_definition(problem: &DefinitionProblem) -> Said {
    let text = format!(
        "pods would fail with it: {problem}. Correct the definition, and add it to {GIVE} then"
    );
    (Outcome::NotCarried, text)
}

/// True for a chain that calls Multus, in any spelling, inside a plugin, too.
fn leads_to_multus(chain: &PluginChain) -> bool {
    MULTUS.iter().any(|plugin| chain.leads_to(plugin))
}

/// Takes over the network that `clusterNetwork` names.
pub(crate) fn named(
    report: &mut Report,
    namespace: &str,
    name: &str,
    definitions: &Definitions,
) -> Said {
    if name.starts_with('/') {
        return at(report, name);
    }
    match definitions.find(namespace, name) {
        Some(Ok(read)) => carry(report, read, "its definition"),
        Some(Err(error)) => refused(&error.problem),
        None => {
            report.options.push(DELEGATE.to_owned());
            let text = format!(
                "no NetworkAttachmentDefinition {namespace}/{} was given: if the cluster has it, import again with \
                 --definitions; else copy the configuration of that name from confDir to {CONF_DIR}, so that it is the \
                 first by name that is not podnet's",
                shortened(name)
            );
            (Outcome::ByHand, text)
        }
    }
}

/// Takes over a path: of a file, or of a directory whose first file counts.
fn at(report: &mut Report, path: &str) -> Said {
    report.options.push(DELEGATE.to_owned());
    let kinds = ["conf", "conflist", "json"];
    let path = Path::new(path);
    let is_file = path
        .extension()
        .is_some_and(|kind| kinds.iter().any(|known| kind == *known));
    let directory = if is_file {
        path.parent().unwrap_or(path)
    } else {
        path
    };
    match (is_runtimes(directory), is_file) {
        (true, false) => (
            Outcome::Carried,
            format!(
                "{DELEGATE}: the first file by name that is not podnet's; 00-multus.conf must be gone"
            ),
        ),
        (true, true) => (
            Outcome::ByHand,
            format!(
                "{DELEGATE} takes the first file by name that is not podnet's: rename the files if that is another one"
            ),
        ),
        (false, _) => (
            Outcome::ByHand,
            format!(
                "{DELEGATE} looks in {CONF_DIR} alone: copy the configuration there, as the first by name that is not \
                 podnet's"
            ),
        ),
    }
}

/// True for the runtimes' directory, as the node or Multus' container has it.
pub(crate) fn is_runtimes(directory: &Path) -> bool {
    let wanted = Path::new(CONF_DIR.trim_start_matches('/'));
    let mut parts = directory.components();
    // Such a path is somewhere else than it ends.
    let climbs = parts.any(|part| part == Component::ParentDir);
    directory.is_absolute() && !climbs && directory.ends_with(wanted)
}

/// Reads an element of `delegates`.
fn delegate(
    namespace: &str,
    config: &RawJson,
    index: usize,
) -> Result<NetworkDefinition, DefinitionProblem> {
    let definition = Definition {
        namespace,
        name: &format!("multus-delegate-{index}"),
        annotations: &BTreeMap::new(),
        config: config.get(),
    };
    read_definition(&definition).map_err(|error| error.problem)
}

fn refused(problem: &DefinitionProblem) -> Said {
    let text = format!(
        "podnet does not take the configuration: {problem}. Give --default-network by hand"
    );
    (Outcome::NotCarried, text)
}

fn carry(report: &mut Report, read: NetworkDefinition, whose: &str) -> Said {
    match read.meaning {
        Meaning::Own(own) => match own.network {
            NetworkRef::PodNetwork(name) => {
                let option = format!("--default-network=podnetwork:{name}");
                report.options.push(option.clone());
                let text = format!("{option}: {whose} is of type {PLUGIN_TYPE}");
                (Outcome::Carried, text)
            }
            NetworkRef::Attachment { namespace, name } => {
                let text = format!(
                    "{whose} names PodNetworkAttachment {namespace}/{name}, and the default network is a PodNetwork: \
                     give --default-network=podnetwork: with the name of its network"
                );
                (Outcome::NotCarried, text)
            }
        },
        Meaning::ByName(network) => {
            report.options.push(DELEGATE.to_owned());
            let text = format!(
                "{whose} has no configuration: copy the one named {network} from confDir to {CONF_DIR}, so that it is \
                 the first by name that is not podnet's"
            );
            (Outcome::ByHand, text)
        }
        Meaning::Delegate(chain) => file(report, &chain, whose),
    }
}

fn file(report: &mut Report, chain: &PluginChain, whose: &str) -> Said {
    if leads_to_multus(chain) {
        let text =
            format!("{whose} calls Multus once more: give the configuration of the network itself");
        return (Outcome::NotCarried, text);
    }
    report.options.push(DELEGATE.to_owned());
    let ending = if chain.is_list { "conflist" } else { "conf" };
    let path = format!("{CONF_DIR}/10-{}.{ending}", chain.name);
    let text = format!(
        "{DELEGATE}, with {whose} as the first file of {CONF_DIR} by name that is not podnet's: {path}, unless the node \
         has it already"
    );
    report.files.push(File {
        path,
        text: chain.config(),
    });
    (Outcome::Carried, text)
}
