//! A release of the chart in a real API server.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testbed::apiserver::{self, ApiServer};

use super::{Helm, chart};
use crate::kubernetes::objects::kubectl;

const NAMESPACE: &str = "--namespace=podnet-system";
const CRD: &str = "podnetworks.podnet.dev";

/// An object of the server, or nothing.
fn get(server: &ApiServer, arguments: &[&str]) -> Option<Value> {
    let mut all = vec!["get", "--output=json", "--ignore-not-found"];
    all.extend(arguments);
    let output = kubectl(server, &all);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    (!text.is_empty()).then(|| serde_json::from_str(&text).expect("JSON"))
}

/// A chart of an earlier day, in which a kind had a column less.
fn older(dir: &Path) -> String {
    let copy = Command::new("cp")
        .args(["-r", &chart()])
        .arg(dir)
        .status()
        .expect("cp starts");
    assert!(copy.success());
    let path = dir.join("podnet/templates/crds.yaml");
    let text = fs::read_to_string(&path).expect("a template");
    let mut lines: Vec<&str> = text.lines().collect();
    let name = lines
        .iter()
        .position(|line| *line == "      name: Provider");
    let name = name.expect("PodNetwork has a column of its provider");
    // Description, path, name and type of it.
    let column = lines.drain(name - 2..=name + 1).collect::<Vec<_>>();
    assert!(column[0].starts_with("    - description: "), "{column:?}");
    lines.push("");
    fs::write(&path, lines.join("\n")).expect("a template");
    dir.join("podnet").display().to_string()
}

/// The columns that `kubectl get` has for the kind.
fn columns(server: &ApiServer) -> Vec<String> {
    let crd = get(server, &["crd", CRD]).expect("the definition is there");
    let columns = &crd["spec"]["versions"][0]["additionalPrinterColumns"];
    let columns = columns.as_array().expect("a list").iter();
    columns
        .map(|column| column["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Helm never upgrades what is in `crds/` of a chart.
#[test]
fn a_release_is_installed_upgraded_with_its_definitions_and_leaves_these_when_it_goes() {
    let test = testbed::test_name!();
    let Some(helm) = Helm::find(test) else {
        return;
    };
    let Some(programs) = apiserver::programs_for(test) else {
        return;
    };
    let server = ApiServer::start(&programs, &[]);
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let dir = tempfile::tempdir().expect("a directory");
    let older = older(dir.path());
    let helm = |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend([NAMESPACE, &kubeconfig]);
        helm.succeed(&all)
    };

    let said = helm(&["install", "podnet", &older, "--create-namespace"]);
    assert!(
        said.contains("rollout status daemonset/podnet-agent"),
        "{said}"
    );
    assert!(
        said.contains("The image localhost/podnet:dev is in no registry"),
        "{said}"
    );
    let agents = || get(&server, &["daemonset", "podnet-agent", NAMESPACE]);
    let image = |agents: Option<Value>| {
        agents.map(|it| it["spec"]["template"]["spec"]["containers"][0]["image"].clone())
    };
    assert_eq!(image(agents()), Some("localhost/podnet:dev".into()));
    let before = columns(&server);
    assert!(!before.contains(&"Provider".to_owned()), "{before:?}");

    helm(&["upgrade", "podnet", &chart(), "--set=image.tag=v2"]);
    assert_eq!(image(agents()), Some("localhost/podnet:v2".into()));
    let after = columns(&server);
    assert!(after.contains(&"Provider".to_owned()), "{after:?}");

    let said = helm(&[
        "upgrade",
        "podnet",
        &chart(),
        "--reuse-values",
        "--set=uninstall=true",
    ]);
    assert!(said.contains("The nodes are being cleaned"), "{said}");
    let cleaning = agents().expect("pods that clean nodes");
    let pod = &cleaning["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"][0]["args"][0], "cleanup");
    assert_eq!(pod["initContainers"][0]["image"], "localhost/podnet:v2");
    for kind in ["deployment/podnet-controller", "daemonset/podnet-switch"] {
        assert_eq!(get(&server, &[kind, NAMESPACE]), None, "{kind}");
    }

    let said = helm(&["uninstall", "podnet"]);
    assert!(said.contains(CRD), "it says what it keeps: {said}");
    assert_eq!(agents(), None);
    let policy = "validatingadmissionpolicy/podnet-agent.podnet.dev";
    assert_eq!(get(&server, &[policy]), None);
    assert!(get(&server, &["crd", CRD]).is_some());
    // The next release takes over what the last one has left.
    helm(&["install", "podnet", &chart()]);
    assert_eq!(columns(&server), after);
}
