//! Check dependencies between packages, and owners of outside crates.

use std::collections::BTreeSet;

use serde_json::Value;

/// Edges of the workspace use what they like.
const ANY: &[&str] = &["*"];

/// Each package with the workspace packages it may depend on, lowest layer first.
const LAYERS: &[(&str, &[&str])] = &[
    // What every process needs, and knows no type of ours.
    ("telemetry", &[]),
    ("spans", &[]),
    ("listen", &[]),
    // Words: pure, no IO.
    ("agent-common", &[]),
    ("cni-spec", &[]),
    ("api", &[]),
    ("ipam", &[]),
    ("policy", &[]),
    ("services", &["api"]),
    // Another program's configuration in the words of ours.
    ("multus", &["api"]),
    // Policies as users write them, and the networks that they name.
    ("policy-objects", &["api", "policy"]),
    // Mechanism: one kernel or OS interface each, never each other.
    ("store", &[]),
    ("memif", &[]),
    ("xsk", &[]),
    ("kubelet", &[]),
    ("netdev", &["agent-common"]),
    ("kernel-types", &["agent-common"]),
    ("datapath", &["agent-common", "kernel-types"]),
    // memif is a part of it, and its own port of podnet's policy.
    ("frames", &["agent-common", "memif"]),
    // Tables of the switch, without its threads.
    ("ways", &["agent-common", "frames"]),
    ("uswitch", &["agent-common", "frames", "memif", "ways"]),
    // Packets of a port with their verdicts, out of what the datapath shows.
    ("capture", &["agent-common", "datapath"]),
    // What users have written, as it was read.
    ("world", &["api", "ipam"]),
    ("cluster", &["api", "telemetry"]),
    ("election", &["cluster"]),
    // The cluster at one moment.
    ("overview", &["api", "cluster", "world"]),
    // Endpoints of Services on networks, for the controller.
    (
        "service-slices",
        &["api", "cluster", "election", "telemetry"],
    ),
    // Programs of the cluster; neither knows the other or a node.
    (
        "controller",
        &[
            "api",
            "cluster",
            "election",
            "ipam",
            "listen",
            "overview",
            "policy",
            "policy-objects",
            "service-slices",
            "telemetry",
            "world",
        ],
    ),
    (
        "webhook",
        &["api", "cluster", "listen", "telemetry", "world"],
    ),
    // Plugins of others, which know none of our networks.
    ("delegate", &["api", "cni-spec", "telemetry"]),
    // The kernel's side.
    ("agent-ebpf", &["agent-common"]),
    // Ground of the node: the order of locks, and what is podnet's in the kernel.
    ("locks", &["telemetry"]),
    ("host", &["cni-spec", "datapath", "netdev", "telemetry"]),
    // State: what is held, and by which container.
    (
        "book",
        &[
            "agent-common",
            "api",
            "cni-spec",
            "delegate",
            "host",
            "ipam",
            "locks",
            "netdev",
            "store",
            "telemetry",
            "world",
        ],
    ),
    ("metrics", &["book", "memif", "telemetry", "uswitch"]),
    // What other nodes say of their members.
    (
        "remotes",
        &["agent-common", "api", "book", "locks", "telemetry"],
    ),
    // The only writers of the maps, which know no feature.
    (
        "verdicts",
        &["agent-common", "book", "datapath", "locks", "telemetry"],
    ),
    (
        "tables",
        &[
            "verdicts",
            "agent-common",
            "api",
            "book",
            "datapath",
            "ipam",
            "locks",
            "remotes",
            "telemetry",
        ],
    ),
    // Wings, which do not know each other.
    (
        "guards",
        &[
            "agent-common",
            "api",
            "book",
            "datapath",
            "locks",
            "policy",
            "policy-objects",
            "remotes",
            "tables",
            "telemetry",
            "world",
        ],
    ),
    (
        "serving",
        &[
            "agent-common",
            "api",
            "book",
            "datapath",
            "services",
            "tables",
            "telemetry",
            "world",
        ],
    ),
    (
        "ports",
        &[
            "api",
            "book",
            "cni-spec",
            "datapath",
            "host",
            "listen",
            "memif",
            "metrics",
            "netdev",
            "tables",
            "telemetry",
            "uswitch",
            "world",
            "xsk",
        ],
    ),
    (
        "node-stack",
        &[
            "agent-common",
            "api",
            "book",
            "datapath",
            "host",
            "ipam",
            "locks",
            "netdev",
            "tables",
            "telemetry",
            "world",
        ],
    ),
    (
        "reach",
        &[
            "agent-common",
            "api",
            "book",
            "cni-spec",
            "datapath",
            "host",
            "locks",
            "metrics",
            "netdev",
            "node-stack",
            "remotes",
            "tables",
            "telemetry",
            "world",
        ],
    ),
    (
        "addresses",
        &[
            "agent-common",
            "api",
            "book",
            "cni-spec",
            "ipam",
            "telemetry",
            "world",
        ],
    ),
    // Policy.
    (
        "agent",
        &[
            "addresses",
            "agent-common",
            "api",
            "book",
            "capture",
            "cluster",
            "cni-spec",
            "controller",
            "datapath",
            "delegate",
            "guards",
            "host",
            "ipam",
            "kubelet",
            "listen",
            "locks",
            "memif",
            "metrics",
            "multus",
            "netdev",
            "node-stack",
            "ports",
            "reach",
            "remotes",
            "serving",
            "spans",
            "store",
            "tables",
            "telemetry",
            "uswitch",
            "webhook",
            "world",
            "xsk",
        ],
    ),
    // Edges.
    ("cni", &["cni-spec"]),
    // Asks agents by kubectl, in their own words.
    ("kubectl-podnet", &[]),
    // Verbs only: it is built before it prints a word.
    ("xtask", &[]),
    // Links nothing of podnet: documents are checked without building it.
    ("bench-report", &[]),
    ("corpus", &[]),
    ("proof", &[]),
    ("testbed", ANY),
    ("demo", ANY),
    ("test-cluster", ANY),
    ("bench", ANY),
    ("tests", ANY),
];

/// Further packages that tests of a package may use.
///
/// A datapath is tested on real links, and inputs that fuzzing kept are run again.
const FOR_TESTS: &[(&str, &str)] = &[
    ("agent-common", "corpus"),
    ("api", "corpus"),
    ("cni-spec", "corpus"),
    ("datapath", "netdev"),
    ("memif", "corpus"),
    ("addresses", "controller"),
    ("addresses", "host"),
    ("addresses", "k8s-openapi"),
    ("addresses", "overview"),
    ("cluster", "tower"),
    ("ports", "agent-common"),
    ("tables", "k8s-openapi"),
];

/// The package that tests of every other may use, to check in.
const FOR_EVERY_TEST: &str = "proof";

/// Packages that test, show and measure, and may use any other.
const FOR_TESTING: [&str; 6] = [
    "bench",
    "bench-report",
    "demo",
    "test-cluster",
    "testbed",
    "tests",
];

/// Outside crates (`*` ends a prefix) and the only packages that may use them.
///
/// Those for tests and the bench always may.
const OWNED: &[(&str, &[&str])] = &[
    ("anyhow", &["xtask"]),
    ("axum", &["agent", "controller", "listen", "webhook"]),
    ("aya", &["datapath"]),
    ("aya-ebpf", &["agent-ebpf"]),
    ("aya-obj", &["datapath"]),
    (
        "clap",
        &[
            "agent",
            "cluster",
            "controller",
            "election",
            "kubectl-podnet",
            "ports",
            "reach",
            "spans",
            "tables",
            "webhook",
            "world",
            "xtask",
        ],
    ),
    ("flate2", &["kubectl-podnet", "xtask"]),
    (
        "k8s-openapi",
        &[
            "agent",
            "api",
            "cluster",
            "controller",
            "election",
            "overview",
            "reach",
            "remotes",
            "service-slices",
            "webhook",
        ],
    ),
    (
        "kube",
        &[
            "agent",
            "cluster",
            "controller",
            "election",
            "overview",
            "service-slices",
            "webhook",
        ],
    ),
    ("kube-core", &["addresses", "api"]),
    ("kube-derive", &["api"]),
    ("libc", &["agent"]),
    ("netlink-*", &["netdev"]),
    ("nix", &["agent", "datapath", "netdev", "uswitch"]),
    ("notify", &["agent", "reach", "world"]),
    ("opentelemetry*", &["spans"]),
    ("pcap-file", &["capture"]),
    (
        "prometheus",
        &["agent", "controller", "metrics", "telemetry", "webhook"],
    ),
    ("prost*", &["kubelet"]),
    ("rcgen", &["webhook"]),
    ("redb", &["store"]),
    ("schemars", &["api"]),
    ("sha2", &["xtask"]),
    ("tar", &["kubectl-podnet", "xtask"]),
    ("tokio-rustls", &["webhook"]),
    ("tonic*", &["kubelet", "spans"]),
    ("tower*", &["kubelet"]),
    ("tracing-subscriber", &["telemetry"]),
];

/// The layer that must run anywhere: it has no IO and no clock.
///
/// Its tests may.
const PURE: [&str; 6] = [
    "agent-common",
    "cni-spec",
    "api",
    "ipam",
    "multus",
    "policy",
];
const IMPURE: [&str; 5] = ["mio", "rustix", "tempfile", "tokio", "tracing"];

/// Compares the packages of `cargo metadata` with the tables; one line per finding.
pub(crate) fn check(packages: &[Value]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| *known == name) else {
            findings.push(format!(
                "package `{name}` has no layer: add it to the table in xtask/src/tidy/layers.rs"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let is_dev = dependency["kind"] == "dev";
            if is_dev && (on == FOR_EVERY_TEST || FOR_TESTS.contains(&(name, on))) {
                continue;
            }
            let finding = if LAYERS.iter().any(|(known, _)| *known == on) {
                internal(name, on, allowed)
            } else {
                external(name, on, is_dev)
            };
            findings.extend(finding);
        }
    }
    findings
}

/// Name each rule for an outside crate that no package depends on.
///
/// Such a rule says that the project uses what it does not.
pub(crate) fn dead_rules(packages: &[Value]) -> Vec<String> {
    let used: BTreeSet<&str> = packages
        .iter()
        .flat_map(|package| package["dependencies"].as_array().into_iter().flatten())
        .filter_map(|dependency| dependency["name"].as_str())
        .collect();
    OWNED
        .iter()
        // One without an owner forbids the crate.
        .filter(|(_, owners)| !owners.is_empty())
        .map(|(pattern, _)| *pattern)
        .filter(|pattern| !used.iter().any(|name| matches(pattern, name)))
        .map(|pattern| {
            format!(
                "no package depends on `{pattern}`: remove its rule from xtask/src/tidy/layers.rs"
            )
        })
        .collect()
}

/// True when a crate's name is what a rule is about.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

fn internal(name: &str, on: &str, allowed: &[&str]) -> Option<String> {
    // A package names itself to give its own tests a feature.
    if on == name || allowed.contains(&"*") || allowed.contains(&on) {
        return None;
    }
    let list = if allowed.is_empty() {
        "none".to_owned()
    } else {
        allowed.join(", ")
    };
    Some(format!(
        "package `{name}` depends on `{on}`; of the workspace it may use: {list} \
         (xtask/src/tidy/layers.rs)"
    ))
}

fn external(name: &str, on: &str, is_dev: bool) -> Option<String> {
    if PURE.contains(&name) && IMPURE.contains(&on) && !is_dev {
        return Some(format!(
            "package `{name}` is pure: it must not depend on `{on}`"
        ));
    }
    let owners = OWNED
        .iter()
        .find_map(|(pattern, owners)| matches(pattern, on).then_some(*owners))?;
    if owners.contains(&name) || FOR_TESTING.contains(&name) {
        return None;
    }
    let list = if owners.is_empty() {
        "nobody".to_owned()
    } else {
        owners.join(", ")
    };
    Some(format!(
        "package `{name}` depends on `{on}`, which belongs to: {list}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_for_a_crate_that_no_package_uses_is_named() {
        let all = |names: &[&str]| -> Vec<Value> {
            let on = |name: &&str| json!({"name": name.trim_end_matches('*'), "kind": null});
            vec![json!({"name": "agent", "dependencies": names.iter().map(on).collect::<Vec<_>>()})]
        };
        let names: Vec<&str> = OWNED.iter().map(|(pattern, _)| *pattern).collect();
        assert_eq!(dead_rules(&all(&names)), [""; 0]);
        let found = dead_rules(&all(&names[1..]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(names[0]), "{found:?}");
    }

    fn check_one(name: &str, on: &str, kind: Option<&str>) -> Vec<String> {
        check(&[json!({"name": name, "dependencies": [{"name": on, "kind": kind}]})])
    }

    #[test]
    fn mechanism_crates_do_not_know_each_other() {
        let found = check_one("netdev", "datapath", None);
        assert!(
            found[0].contains("`netdev` depends on `datapath`"),
            "{found:?}"
        );
        assert_eq!(check_one("netdev", "datapath", Some("dev")).len(), 1);
        assert_eq!(check_one("datapath", "netdev", Some("dev")), [""; 0]);
        assert_eq!(check_one("datapath", "netdev", None).len(), 1);
        assert_eq!(check_one("agent", "datapath", None), [""; 0]);
    }

    #[test]
    fn tests_of_every_package_may_check_in_and_no_product_does() {
        assert_eq!(check_one("cni-spec", "proof", Some("dev")), [""; 0]);
        assert_eq!(check_one("cni-spec", "proof", None).len(), 1);
    }

    #[test]
    fn a_crate_with_an_owner_is_refused_elsewhere() {
        assert_eq!(check_one("agent", "aya", None).len(), 1);
        assert_eq!(check_one("agent", "netlink-packet-route", None).len(), 1);
        assert_eq!(check_one("datapath", "aya", None), [""; 0]);
        assert_eq!(check_one("tests", "aya", None), [""; 0]);
    }

    #[test]
    fn words_do_no_io_but_their_tests_may() {
        assert_eq!(check_one("ipam", "tokio", None).len(), 1);
        assert_eq!(check_one("ipam", "tempfile", Some("dev")), [""; 0]);
        assert_eq!(check_one("ipam", "serde", None), [""; 0]);
    }

    #[test]
    fn a_package_without_a_layer_is_found() {
        assert!(check_one("helpers", "serde", None)[0].contains("no layer"));
    }
}
