//! Test the Helm chart, rendered by Helm, against the manifests.

mod release;
mod values;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use testbed::skip;

/// Program that `cargo xtask test` names, and the reason that there is none.
const HELM: &str = "PODNET_HELM";
const NO_HELM: &str = "PODNET_NO_HELM";

/// Namespace of every object of install.yaml.
const NAMESPACE: &str = "podnet-system";
/// Labels that tell of the release.
const OF_RELEASE: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// Kind and name, and the namespace of what has one.
pub(super) type Key = (String, String, String);

/// A Helm, and files of the repository.
#[derive(Debug)]
pub(crate) struct Helm {
    program: PathBuf,
}

impl Helm {
    /// `None`, and said, when there is none here.
    pub(crate) fn find(test: &str) -> Option<Self> {
        let program = env::var_os(HELM).map(PathBuf::from);
        if program.is_none() {
            let why = env::var(NO_HELM).map_or(String::new(), |why| format!(": {why}"));
            skip::skip(test, &format!("needs helm{why}"));
        }
        Some(Self { program: program? })
    }

    /// Its file.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it, without settings and caches of the machine's own.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let home = tempfile::tempdir().expect("a directory");
        Command::new(&self.program)
            .args(arguments)
            .env_clear()
            .env("HOME", home.path())
            .output()
            .expect("helm starts")
    }

    /// Its standard output.
    #[track_caller]
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Objects of a release with these values.
    ///
    /// Each value is `NAME=JSON`.
    #[track_caller]
    pub(super) fn objects(&self, values: &[&str]) -> BTreeMap<Key, Value> {
        let mut arguments = vec!["template", "podnet", "--kube-version=v1.36.2"];
        let (chart, namespace) = (chart(), format!("--namespace={NAMESPACE}"));
        arguments.extend([chart.as_str(), namespace.as_str()]);
        let sets: Vec<String> = values.iter().map(|it| format!("--set-json={it}")).collect();
        arguments.extend(sets.iter().map(String::as_str));
        documents(&self.succeed(&arguments))
    }
}

/// The chart's directory.
pub(crate) fn chart() -> String {
    deploy("helm/podnet")
}

pub(super) fn deploy(below: &str) -> String {
    format!("{}/../deploy/{below}", env!("CARGO_MANIFEST_DIR"))
}

/// The objects of a text in YAML.
#[track_caller]
fn documents(text: &str) -> BTreeMap<Key, Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    let mut objects = BTreeMap::new();
    for object in all.into_iter().filter(|object| !object.is_null()) {
        let part = |at: &str| {
            let part = object.pointer(at).and_then(Value::as_str);
            part.unwrap_or_default().to_owned()
        };
        let key = (
            part("/kind"),
            part("/metadata/name"),
            part("/metadata/namespace"),
        );
        assert!(!key.1.is_empty(), "no name: {object}");
        let twice = objects.insert(key.clone(), object);
        assert_eq!(twice, None, "{key:?} is there twice");
    }
    objects
}

/// An object without what Helm says about its release.
fn without_release(mut object: Value) -> Value {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return object;
    };
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.retain(|name, _| !OF_RELEASE.contains(&name.as_str()));
    }
    if metadata.get("annotations") == Some(&json!({"helm.sh/resource-policy": "keep"})) {
        metadata.remove("annotations");
    }
    object
}

/// One source for both ways of installation.
#[test]
fn the_chart_with_its_defaults_is_install_yaml() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    let text = std::fs::read_to_string(deploy("install.yaml")).expect("a file of the repository");
    let mut installed = documents(&text);
    // A release's namespace is there before the release, and is not its own.
    let namespace = ("Namespace".to_owned(), NAMESPACE.to_owned(), String::new());
    assert!(installed.remove(&namespace).is_some());
    let rendered = helm.objects(&[]);
    let names = |objects: &BTreeMap<Key, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&rendered), names(&installed));
    for (key, object) in rendered {
        let labels = &object["metadata"]["labels"];
        let kept = object["kind"] == "CustomResourceDefinition";
        assert!(kept || labels["helm.sh/chart"].is_string(), "{key:?}");
        assert_eq!(without_release(object), installed[&key], "{key:?}");
    }
}

#[test]
fn helm_finds_nothing_to_complain_about_in_the_chart() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    for values in [
        "crds={\"install\":true,\"npwg\":true}",
        "uninstall=true",
        "monitoring={\"podMonitor\":{\"enabled\":true},\"dashboard\":{\"enabled\":true}}",
    ] {
        let set = format!("--set-json={values}");
        helm.succeed(&["lint", "--strict", "--quiet", &chart(), &set]);
    }
}

/// Agents' pods clean their nodes under the same name, and nothing else runs.
#[test]
fn a_release_that_goes_cleans_its_nodes_as_uninstall_yaml_does() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    let objects = helm.objects(&["uninstall=true"]);
    let programs: Vec<&Key> = objects
        .keys()
        .filter(|key| key.0 == "DaemonSet" || key.0 == "Deployment" || key.0.contains("Webhook"))
        .collect();
    assert_eq!(programs.len(), 1, "{programs:?}");
    let text = std::fs::read_to_string(deploy("uninstall.yaml")).expect("a file");
    let wanted = documents(&text);
    let (key, wanted) = wanted.first_key_value().expect("an object");
    assert_eq!(without_release(objects[key].clone()), *wanted);
    let own = helm.objects(&["uninstall=true", "image={\"tag\":\"1\"}"]);
    for container in ["initContainers", "containers"] {
        let pod = &own[key]["spec"]["template"]["spec"];
        assert_eq!(pod[container][0]["image"], "localhost/podnet:1");
    }
}

/// No object names another namespace than the release's.
#[test]
fn a_release_has_all_it_needs_in_its_own_namespace() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    let text = helm.succeed(&[
        "template",
        "podnet",
        &chart(),
        "--namespace=networks",
        "--kube-version=v1.36.2",
    ]);
    assert!(!text.contains(NAMESPACE), "{text}");
    assert!(text.contains("system:serviceaccount:networks:podnet-agent"));
}
