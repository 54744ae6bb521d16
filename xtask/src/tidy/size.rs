//! Count the lines of rooms, tests left out.
//!
//! A room is a package, and in a building each module below its root.

use std::collections::BTreeMap;

use super::tokens;

/// Lines of the largest room, tests left out.
const LINES: usize = 5_000;

/// Packages whose modules are rooms.
///
/// Another one that grows above the limit becomes two.
const BUILDINGS: [&str; 10] = [
    "agent",
    "agent-common",
    "agent-ebpf",
    "bench",
    "crates/api",
    "crates/memif",
    "crates/netdev",
    "tests/cluster",
    "tests/testbed",
    "xtask",
];

/// Lists the rooms above the limit; one line per finding.
pub(super) fn check(files: &[(String, String)]) -> Vec<String> {
    let large = rooms(files).into_iter().filter(|(_, lines)| *lines > LINES);
    large
        .map(|(room, lines)| {
            format!(
                "room {room} has {lines} lines without tests, the limit is {LINES}: make two of it"
            )
        })
        .collect()
}

/// Names and lines of the largest rooms, largest first.
pub(super) fn largest(files: &[(String, String)], most: usize) -> Vec<(String, usize)> {
    let mut rooms: Vec<(String, usize)> = rooms(files).into_iter().collect();
    rooms.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    rooms.truncate(most);
    rooms
}

/// Lines of each room, tests left out.
fn rooms(files: &[(String, String)]) -> BTreeMap<String, usize> {
    let mut packages: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (name, text) in files {
        let Some((package, inner)) = name.split_once("/src/") else {
            continue;
        };
        if inner.ends_with("/tests.rs")
            || inner == "tests.rs"
            || inner.split('/').any(|part| part == "tests")
        {
            continue;
        }
        let module = inner
            .split('/')
            .next()
            .unwrap_or(inner)
            .trim_end_matches(".rs");
        let code = tokens::without_tests(&tokens::code_only(text));
        *packages
            .entry(package)
            .or_default()
            .entry(module)
            .or_default() += code.lines().count();
    }
    let mut rooms = BTreeMap::new();
    for (package, modules) in packages {
        if BUILDINGS.contains(&package) {
            let named = modules.into_iter();
            rooms.extend(named.map(|(module, lines)| (format!("{package}::{module}"), lines)));
        } else {
            rooms.insert(package.to_owned(), modules.values().sum());
        }
    }
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, lines: usize) -> (String, String) {
        (name.to_owned(), "//\n".repeat(lines))
    }

    #[test]
    fn a_module_of_the_agent_above_the_limit_is_named() {
        let files = [
            file("agent/src/kube.rs", 2_000),
            file("agent/src/kube/lookup.rs", 3_001),
            file("agent/src/cni.rs", 4_000),
        ];
        let findings = check(&files);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].contains("agent::kube has 5001 lines"),
            "{findings:?}"
        );
    }

    #[test]
    fn a_package_that_grows_above_the_limit_is_named() {
        let of = |package: &str| {
            [
                file(&format!("{package}/src/a.rs"), 3_000),
                file(&format!("{package}/src/b/c.rs"), 3_000),
            ]
        };
        let findings = check(&of("crates/controller"));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].contains("crates/controller has 6000 lines"),
            "{findings:?}"
        );
        assert_eq!(check(&of("crates/api")), [""; 0], "one that has rooms");
    }

    #[test]
    fn the_modules_of_a_building_are_its_rooms() {
        let large = [
            file("crates/api/src/a/d.rs", 5_001),
            file("crates/api/src/b.rs", 1),
        ];
        assert!(
            check(&large)[0].contains("crates/api::a has 5001"),
            "{:?}",
            check(&large)
        );
    }

    #[test]
    fn tests_are_not_counted() {
        let inside = format!(
            "//\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            "//\n".repeat(6_000)
        );
        let files = [
            file("agent/src/kube/tests/model.rs", 6_000),
            file("agent/src/kube/tests.rs", 6_000),
            ("agent/src/cni.rs".to_owned(), inside),
        ];
        assert_eq!(
            rooms(&files),
            BTreeMap::from([("agent::cni".to_owned(), 2)])
        );
    }

    #[test]
    fn lines_behind_tests_are_counted() {
        for tests in ["mod tests;", "mod tests {\n}"] {
            let text = format!("#[cfg(test)]\n{tests}\n{}", "fn f() {}\n".repeat(LINES));
            let files = [("agent/src/cni.rs".to_owned(), text)];
            let findings = check(&files);
            assert!(findings[0].contains("agent::cni has 5001"), "{findings:?}");
        }
    }
}
