//! Count upward arrows of the agent, its circles of files, and the lines of rooms.
//!
//! Packages cannot use each other in a circle; modules of one package can. A room that grows too large has two
//! jobs. The counts may fall and not rise.

use std::collections::{BTreeMap, BTreeSet};

use super::arrows::{Module, circles, modules};
use super::size;

/// The modules of `agent/src` by floor, lowest first.
///
/// A module uses those of lower floors; those of one floor do not use each other.
const FLOORS: [&[&str]; 13] = [
    // Names of files of the node.
    &["heap", "lease", "places"],
    // Which devices of Kubernetes pods have; Services of the API server, which need no other part of its view.
    &["devices", "service_objects"],
    // This node's view of the API server.
    &["kube"],
    &["error"],
    // The life of an attachment.
    &["attach"],
    // The value that holds all rooms.
    &["node"],
    &["tombstone"],
    &["node_access", "recover", "request"],
    // Front ends.
    &["cni", "device_plugin", "pods"],
    &["install"],
    &["capture", "explain", "views"],
    &["admin", "cli", "door"],
    // Programs.
    &["commands", "run"],
];
/// Arrows that run upward or along a floor today: pairs of a file and a module.
///
/// Lower it with them.
const UPWARD: usize = 0;
/// Files of the largest circle today.
const CIRCLE: usize = 2;
/// Files below the wiring that name the type of all features.
const NAMING_NODE: usize = 0;

/// The type that holds all features.
const NODE: &str = "Node";

/// Compares files with the table, the counts and the limit; one line per finding.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let modules = modules(files, "agent/src/");
    let mut findings = size::check(files);
    let floors: BTreeMap<&str, usize> = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(floor, names)| names.iter().map(move |name| (*name, floor)))
        .collect();
    let rooms: BTreeSet<&str> = modules.iter().filter_map(Module::room).collect();
    for room in rooms {
        if !floors.contains_key(room) {
            findings.push(format!(
                "module `{room}` of the agent has no floor: add it to the table in xtask/src/tidy/rooms.rs"
            ));
        }
    }
    let upward = upward(&modules, &floors);
    let naming = naming_node(&modules, &floors);
    let circle = circles(&modules).into_iter().next().unwrap_or_default();
    for (what, count, most, names) in [
        (
            "arrows of the agent run upward",
            upward.len(),
            UPWARD,
            upward,
        ),
        (
            "files of the agent are one circle",
            circle.len(),
            CIRCLE,
            circle,
        ),
        (
            "files below the wiring name `Node`",
            naming.len(),
            NAMING_NODE,
            naming,
        ),
    ] {
        if count > most {
            findings.push(format!(
                "{count} {what}, {most} before: remove the new one, all are {}",
                names.join(", ")
            ));
        } else if count < most {
            findings.push(format!(
                "{count} {what}, {most} before: write the new count into xtask/src/tidy/rooms.rs"
            ));
        }
    }
    findings
}

/// Each arrow from a file to a module that is not below the file's own.
fn upward(modules: &[Module], floors: &BTreeMap<&str, usize>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for module in modules {
        let Some(from) = module.room() else { continue };
        for path in &module.uses {
            // An item of the root, or the root by another name, may be anything of any floor.
            let to = path.first().map_or("crate", String::as_str);
            let is_room = floors.contains_key(to);
            let below = is_room && floors.get(to) < floors.get(from);
            if from != to && !below {
                found.insert(format!("{} → {to}", module.file));
            }
        }
    }
    found.into_iter().collect()
}

fn naming_node(modules: &[Module], floors: &BTreeMap<&str, usize>) -> Vec<String> {
    let wiring = floors.get("node");
    let below = modules
        .iter()
        .filter(|module| module.room().and_then(|room| floors.get(room)) < wiring);
    below
        .filter(|module| module.names(NODE, "node"))
        .map(|module| module.file.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let modules = modules(&files, "agent/src/");
        let floors = BTreeMap::from([("low", 0), ("beside", 0), ("high", 1)]);
        upward(&modules, &floors)
    }

    #[test]
    fn arrows_upward_and_along_a_floor_are_counted_once_a_file() {
        let low = "use crate::high::{A, B};\nuse crate::beside::C;\nfn f() { crate::high::g() }\n";
        let high = "use crate::low::D;\nuse super::low::E;\n";
        let expected = ["agent/src/low.rs → beside", "agent/src/low.rs → high"];
        let files = [
            ("agent/src/low.rs", low),
            ("agent/src/beside.rs", ""),
            ("agent/src/high.rs", high),
        ];
        assert_eq!(found(&files), expected);
    }

    /// `pub use high::A` in the root is no way past the floors.
    #[test]
    fn what_the_root_hands_on_is_an_arrow_upward() {
        let low = "use crate::A;\nuse crate as root;\nfn f(a: root::high::A) {}\n";
        let files = [("agent/src/low.rs", low), ("agent/src/high.rs", "")];
        let expected = ["agent/src/low.rs → A", "agent/src/low.rs → crate"];
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn comments_and_tests_draw_no_arrow() {
        let low =
            "//! See [`crate::high`].\n#[cfg(test)]\nmod tests {\n    use crate::high::A;\n}\n";
        let files = [("agent/src/low.rs", low), ("agent/src/high.rs", "")];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn a_module_without_a_floor_is_named() {
        let files = [("agent/src/attic.rs".to_owned(), String::new())];
        let findings = check(&files);
        assert!(findings[0].contains("`attic`"), "{findings:?}");
    }
}
