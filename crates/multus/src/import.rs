//! From a configuration to a report, field by field.

use std::collections::BTreeSet;
use std::path::Path;

use api::{RawJson, RawObject, check_label};
use serde::de::DeserializeOwned;

use crate::default_network::{self, CONF_DIR, Said};
use crate::definitions::{Definitions, MULTUS};
use crate::error::ImportError;
use crate::fields::{self, Field};
use crate::read::{HIDDEN, few, is_secret, object, quoted, shortened, shown, unlike, value};
use crate::report::{Finding, Outcome, Report};

/// Namespace of Multus' own definitions where `multusNamespace` says nothing.
const MULTUS_NAMESPACE: &str = "kube-system";
/// Capabilities that podnet's configuration declares.
const CAPABILITIES: [&str; 5] = [
    "bandwidth",
    "cgroupPath",
    "dns",
    "portMappings",
    "io.kubernetes.cri.pod-annotations",
];
/// Keys of a list of plugins that are those of its plugins as well.
const OF_LISTS: [&str; 3] = ["cniVersion", "name", "plugins"];

/// Reads a configuration of Multus, and says what it is in podnet's words.
///
/// # Errors
/// Not a configuration of Multus, a repeated key, or a value of another type than Multus takes.
pub fn import(text: &str, definitions: &Definitions) -> Result<Report, ImportError> {
    let outer = object(text)?;
    few("the configuration", outer.iter().count())?;
    let mut report = Report::default();
    let conf = match get(&outer, "plugins") {
        Some(plugins) => chained(&mut report, &outer, plugins)?,
        None => outer,
    };
    few("the plugin's configuration", conf.iter().count())?;
    let file = File::read(&conf)?;
    for (key, raw) in conf.iter() {
        file.field(&mut report, key, raw, definitions)?;
    }
    file.absent(&mut report);
    report.findings.extend(definitions.findings());
    Ok(report)
}

/// The configuration of Multus in a list of plugins.
fn chained(
    report: &mut Report,
    list: &RawObject,
    plugins: &RawJson,
) -> Result<RawObject, ImportError> {
    let kind = fields::Kind::Objects;
    let plugins: Option<Vec<RawObject>> = value("plugins", plugins, kind)?;
    few("plugins", plugins.as_ref().map_or(0, Vec::len))?;
    for (key, raw) in list.iter() {
        if !OF_LISTS.iter().any(|known| known.eq_ignore_ascii_case(key)) {
            let text =
                "a key of the list, not of Multus; the list of podnet is written by --install-cni";
            report.tell(key, raw, (Outcome::NotCarried, text.to_owned()));
        }
    }
    let mut found = None;
    for (index, plugin) in plugins.unwrap_or_default().into_iter().enumerate() {
        let path = format!("plugins[{index}]");
        let kind = get(&plugin, "type");
        let name: String = match kind {
            Some(raw) => value(&format!("{path}.type"), raw, fields::Kind::Text)?,
            None => None,
        }
        .unwrap_or_default();
        if found.is_none() && MULTUS.contains(&name.as_str()) {
            unlike(&plugin)?;
            found = Some(plugin);
            continue;
        }
        report.findings.push(Finding {
            field: path,
            value: quoted(&name),
            outcome: Outcome::NotCarried,
            text: "it goes on after Multus for every pod; put it into the list of the default network's own \
                   configuration"
                .to_owned(),
        });
    }
    found.ok_or(ImportError::NoMultusInList)
}

/// The fields on which the meaning of others depends.
struct File {
    /// True for the plugin's file with all of its settings, false for the daemon's.
    is_plugin: bool,
    cluster_network: Option<String>,
    namespace: String,
    isolated: bool,
    default_networks: Vec<String>,
    system_namespaces: Vec<String>,
    has_namespace: bool,
}

impl File {
    fn read(conf: &RawObject) -> Result<Self, ImportError> {
        let kind: Option<String> = known(conf, "type")?;
        let is_plugin = match kind.as_deref() {
            Some(kind) if MULTUS.contains(&kind) => kind == "multus",
            Some(found) => {
                return Err(ImportError::NotMultus {
                    found: shortened(found),
                });
            }
            None => false,
        };
        if !conf.iter().any(|(key, _)| fields::find(key).is_some()) {
            return Err(ImportError::NoField);
        }
        let text = |key| known::<String>(conf, key).map(|text| text.filter(|it| !it.is_empty()));
        let cluster_network = text("clusterNetwork")?;
        let delegates: Option<Vec<RawObject>> = known(conf, "delegates")?;
        let has_network = cluster_network.is_some() || delegates.is_some_and(|it| !it.is_empty());
        if is_plugin && !has_network {
            return Err(ImportError::NoNetwork);
        }
        let namespace = text("multusNamespace")?;
        let has_namespace = namespace.is_some();
        let namespace = namespace.unwrap_or_else(|| MULTUS_NAMESPACE.to_owned());
        check("multusNamespace", &namespace)?;
        let default_networks: Option<Vec<String>> = known(conf, "defaultNetworks")?;
        let system_namespaces: Option<Vec<String>> = known(conf, "systemNamespaces")?;
        few(
            "defaultNetworks",
            default_networks.as_ref().map_or(0, Vec::len),
        )?;
        few(
            "systemNamespaces",
            system_namespaces.as_ref().map_or(0, Vec::len),
        )?;
        Ok(Self {
            is_plugin,
            cluster_network,
            namespace,
            isolated: known(conf, "namespaceIsolation")?.unwrap_or_default(),
            default_networks: default_networks.unwrap_or_default(),
            system_namespaces: system_namespaces.unwrap_or_default(),
            has_namespace,
        })
    }

    /// Says what becomes of one field.
    fn field(
        &self,
        report: &mut Report,
        key: &str,
        raw: &RawJson,
        definitions: &Definitions,
    ) -> Result<(), ImportError> {
        let Some(field) = fields::find(key) else {
            report.tell(key, raw, unknown());
            return Ok(());
        };
        // The type is checked also where the value makes no difference.
        checked(field, key, raw)?;
        if let Some(outcome) = field.outcome {
            report.tell(key, raw, (outcome, field.counterpart.to_owned()));
            return Ok(());
        }
        let same = |outcome| (outcome, field.counterpart.to_owned());
        match field.name {
            "capabilities" => return capabilities(report, key, raw),
            "logOptions" | "perNodeCertificate" => return below(report, field, key, raw),
            "delegates" => return self.delegates(report, key, raw),
            "defaultNetworks" => {
                self.default_networks(report, key, raw, definitions);
                return Ok(());
            }
            _ => {}
        }
        let text: String = if field.kind == fields::Kind::Text {
            known_value(field, raw)?.unwrap_or_default()
        } else {
            String::new()
        };
        let flag: bool = field.kind == fields::Kind::Flag
            && known_value::<bool>(field, raw)?.unwrap_or_default();
        let said = match field.name {
            // An empty text is an absent one to Multus.
            _ if field.kind == fields::Kind::Text && text.is_empty() => nothing(),
            "clusterNetwork" => default_network::named(report, &self.namespace, &text, definitions),
            "systemNamespaces" => self.system_namespaces(report)?,
            "multusNamespace" => self.override_option(report),
            "namespaceIsolation" if flag => {
                report.options.push("--namespace-isolation".to_owned());
                let more =
                    "--namespace-isolation; PodNetworkAttachments are isolated with definitions";
                (Outcome::Carried, more.to_owned())
            }
            "namespaceIsolation" => nothing(),
            "globalNamespaces" => self.global_namespaces(report, &text)?,
            "binDir" if text == "/opt/cni/bin" => same(Outcome::NeedsNothing),
            "cniConfigDir" | "multusAutoconfigDir" | "confDir"
                if default_network::is_runtimes(Path::new(&text)) =>
            {
                let more =
                    format!("{CONF_DIR} of the node, which is --cni-conf-dir when not given");
                (Outcome::NeedsNothing, more)
            }
            "multusConfigFile" if text == "auto" => same(Outcome::NeedsNothing),
            "readinessindicatorfile"
                if Path::new(&text)
                    .parent()
                    .is_some_and(default_network::is_runtimes) =>
            {
                let more = "with --default-network=delegate the node is not ready until that directory has a configuration, \
                            whatever its name, and its plugins answer STATUS";
                (Outcome::NeedsNothing, more.to_owned())
            }
            "readinessindicatorfile" | "auxiliaryCNIChainName" => same(Outcome::NotCarried),
            "retryDeleteOnError" | "logToStderr" if flag => same(Outcome::NeedsNothing),
            "cleanupConfigOnExit" if !flag => same(Outcome::NeedsNothing),
            "retryDeleteOnError" | "logToStderr" | "cleanupConfigOnExit" => {
                same(Outcome::NotCarried)
            }
            "logLevel" => log_level(report, &text),
            _ => same(Outcome::ByHand),
        };
        report.tell(key, raw, said);
        Ok(())
    }

    fn delegates(&self, report: &mut Report, key: &str, raw: &RawJson) -> Result<(), ImportError> {
        let kind = fields::Kind::Objects;
        let configs: Vec<RawJson> = value(key, raw, kind)?.unwrap_or_default();
        few(key, configs.len())?;
        if configs.is_empty() {
            report.tell(key, raw, nothing());
        }
        let mut given = Vec::new();
        for (index, config) in configs.iter().enumerate() {
            let said = if self.cluster_network.is_some() {
                let text = "Multus takes no notice of it next to clusterNetwork";
                (Outcome::NeedsNothing, text.to_owned())
            } else if index == 0 {
                default_network::first(report, &self.namespace, config)
            } else {
                let (said, target) =
                    default_network::further(report, &self.namespace, config, index);
                given.extend(target);
                said
            };
            report.tell(&format!("{key}[{index}]"), config, said);
        }
        if !given.is_empty() {
            default_network::give(report, &given);
            // Multus makes no exceptions of these.
            report.options.push("--system-namespaces=".to_owned());
        }
        Ok(())
    }

    fn default_networks(
        &self,
        report: &mut Report,
        key: &str,
        raw: &RawJson,
        definitions: &Definitions,
    ) {
        if self.default_networks.is_empty() {
            report.tell(key, raw, nothing());
        }
        let mut given = Vec::new();
        for (index, name) in self.default_networks.iter().enumerate() {
            let said = if self.cluster_network.is_none() {
                let text = "Multus takes no notice of it without clusterNetwork";
                (Outcome::NeedsNothing, text.to_owned())
            } else {
                let (said, target) = default_network::given(&self.namespace, name, definitions);
                given.extend(target);
                said
            };
            report.findings.push(Finding {
                field: format!("{key}[{index}]"),
                value: quoted(name),
                outcome: said.0,
                text: said.1,
            });
        }
        default_network::give(report, &given);
    }

    fn system_namespaces(&self, report: &mut Report) -> Result<Said, ImportError> {
        if self.cluster_network.is_none() || self.default_networks.is_empty() {
            let text = "Multus makes exceptions of defaultNetworks with it, and has none here";
            return Ok((Outcome::NeedsNothing, text.to_owned()));
        }
        for name in &self.system_namespaces {
            check("systemNamespaces", name)?;
        }
        let option = format!("--system-namespaces={}", self.system_namespaces.join(","));
        report.options.push(option.clone());
        Ok((Outcome::Carried, option))
    }

    fn override_option(&self, report: &mut Report) -> Said {
        let option = format!("--default-override={}", self.namespace);
        report.options.push(option.clone());
        let text = format!(
            "{option}: pods may choose their default network by v1.multus-cni.io/default-network, as with Multus; leave \
             it out where no pod does"
        );
        (Outcome::Carried, text)
    }

    fn global_namespaces(&self, report: &mut Report, text: &str) -> Result<Said, ImportError> {
        few("globalNamespaces", text.split(',').count())?;
        let names: BTreeSet<&str> = text.split(',').map(str::trim).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        for name in &names {
            check("globalNamespaces", name)?;
        }
        if !self.isolated {
            let text = "Multus takes no notice of it unless namespaceIsolation is true";
            return Ok((Outcome::NeedsNothing, text.to_owned()));
        }
        let option = format!("--global-namespaces={}", names.join(","));
        report.options.push(option.clone());
        let more = if names.contains(&"default") {
            ""
        } else {
            "; namespace default is none of them, as with Multus"
        };
        Ok((Outcome::Carried, format!("{option}{more}")))
    }

    /// Tells of absent settings whose default is another in podnet.
    fn absent(&self, report: &mut Report) {
        let chosen = report
            .options
            .iter()
            .any(|option| option.starts_with("--default-network="));
        if self.cluster_network.is_none() && !self.is_plugin && !chosen {
            report.options.push("--default-network=delegate".to_owned());
            let text = "--default-network=delegate: the daemon chooses the first file of the directory, and so does podnet";
            report.tell_absent(
                "clusterNetwork",
                "the daemon's choice",
                (Outcome::Carried, text.to_owned()),
            );
        }
        if !self.has_namespace {
            let said = self.override_option(report);
            report.tell_absent("multusNamespace", MULTUS_NAMESPACE, said);
        }
    }
}

impl Report {
    fn tell(&mut self, field: &str, raw: &RawJson, said: Said) {
        let name = field.rsplit('.').next().unwrap_or(field);
        let field = match fields::find(field) {
            Some(_) => field.to_owned(),
            None => shortened(field),
        };
        self.findings.push(Finding {
            field,
            value: if raw.get() != "null" && is_secret(name) {
                HIDDEN.to_owned()
            } else {
                shown(raw.get())
            },
            outcome: said.0,
            text: said.1,
        });
    }

    fn tell_absent(&mut self, field: &str, value: &str, said: Said) {
        self.findings.push(Finding {
            field: field.to_owned(),
            value: format!("not in the file, so {value}"),
            outcome: said.0,
            text: said.1,
        });
    }
}

/// The value of a key in any case, as Go reads it.
fn get<'a>(conf: &'a RawObject, name: &str) -> Option<&'a RawJson> {
    let mut pairs = conf.iter();
    let found = pairs.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, raw)| raw)
}

/// The value of a known field, if it is there.
fn known<T: DeserializeOwned>(conf: &RawObject, name: &str) -> Result<Option<T>, ImportError> {
    let (Some(field), Some(raw)) = (fields::find(name), get(conf, name)) else {
        return Ok(None);
    };
    known_value(field, raw)
}

fn known_value<T: DeserializeOwned>(
    field: &Field,
    raw: &RawJson,
) -> Result<Option<T>, ImportError> {
    value(field.name, raw, field.kind)
}

/// Refuses a value of another type than the field's.
fn checked(field: &Field, path: &str, raw: &RawJson) -> Result<(), ImportError> {
    use fields::Kind;
    let kind = field.kind;
    match kind {
        Kind::Text => value::<String>(path, raw, kind).map(drop),
        Kind::Flag => value::<bool>(path, raw, kind).map(drop),
        Kind::Number => value::<i64>(path, raw, kind).map(drop),
        Kind::Names => value::<Vec<String>>(path, raw, kind).map(drop),
        Kind::Object => value::<RawObject>(path, raw, kind).map(drop),
        Kind::Objects => value::<Vec<RawObject>>(path, raw, kind).map(drop),
    }
}

/// Tells of each field of an object that the table of fields has one by one.
fn below(report: &mut Report, field: &Field, key: &str, raw: &RawJson) -> Result<(), ImportError> {
    let inner: RawObject = value(key, raw, field.kind)?.unwrap_or_default();
    unlike(&inner)?;
    few(key, inner.iter().count())?;
    if inner.is_empty() {
        report.tell(key, raw, nothing());
    }
    for (name, raw) in inner.iter() {
        let path = format!("{}.{name}", field.name);
        let said = match fields::find(&path) {
            Some(known) => {
                checked(known, &path, raw)?;
                let outcome = known.outcome.unwrap_or(Outcome::NotCarried);
                (outcome, known.counterpart.to_owned())
            }
            None => unknown(),
        };
        report.tell(&format!("{key}.{name}"), raw, said);
    }
    Ok(())
}

fn capabilities(report: &mut Report, key: &str, raw: &RawJson) -> Result<(), ImportError> {
    let kind = fields::Kind::Object;
    let inner: RawObject = value(key, raw, kind)?.unwrap_or_default();
    few(key, inner.iter().count())?;
    if inner.is_empty() {
        report.tell(key, raw, nothing());
    }
    for (name, raw) in inner.iter() {
        let path = format!("{key}.{name}");
        let on: Option<bool> = value(&shortened(&path), raw, fields::Kind::Flag)?;
        let said = if !on.unwrap_or_default() {
            nothing()
        } else if CAPABILITIES.contains(&name) {
            let text = "podnet's configuration declares it";
            (Outcome::NeedsNothing, text.to_owned())
        } else {
            let text = "podnet's configuration does not declare it, so the runtime passes no value; pods ask by their lists";
            (Outcome::NotCarried, text.to_owned())
        };
        report.tell(&path, raw, said);
    }
    Ok(())
}

fn log_level(report: &mut Report, level: &str) -> Said {
    let filter = match level.to_ascii_lowercase().as_str() {
        "debug" => "info,agent=debug,kube_runtime=off,kube_client=off",
        "verbose" => {
            let text = "podnet logs that much when --log is not given";
            return (Outcome::NeedsNothing, text.to_owned());
        }
        "error" | "panic" => "error",
        _ => {
            let text = "Multus has no such level; choose one with --log";
            return (Outcome::NotCarried, text.to_owned());
        }
    };
    let option = format!("--log={filter}");
    report.agent_options.push(option.clone());
    (Outcome::Carried, option)
}

fn unknown() -> Said {
    let text = "neither Multus 4.3 nor podnet knows the key: a comment, a slip of the pen, or of another version";
    (Outcome::NotCarried, text.to_owned())
}

/// A value that says no more than no value.
fn nothing() -> Said {
    let text = "Multus does nothing with this value";
    (Outcome::NeedsNothing, text.to_owned())
}

fn check(path: &str, namespace: &str) -> Result<(), ImportError> {
    check_label(namespace).map_err(|error| ImportError::Namespace {
        path: path.to_owned(),
        found: shortened(namespace),
        reason: error.to_string(),
    })
}
