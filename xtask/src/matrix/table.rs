//! Make the table of kernels: a column for each kernel, a row for each feature.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Counts, Run};

/// Features, and the modules of tests that show them.
///
/// A module belongs to the row with the longest fitting part of its name; one that fits none is counted as [`OTHERS`].
const ROWS: [(&str, &[&str]); 23] = [
    (
        "Packet table by `BPF_PROG_TEST_RUN`",
        &["answers", "cases", "flood", "remote", "shaped"],
    ),
    ("Programs attach, by TC filter or TCX link", &["hooks"]),
    (
        "Map layouts are adopted and replaced",
        &["generations", "upgrade"],
    ),
    ("CNI", &["cni"]),
    ("Other CNI implementations on both sides", &["interop"]),
    ("Isolation", &["isolation"]),
    ("Attacks", &["attacks"]),
    ("Restart, kill and reboot under traffic", &["survival"]),
    ("Crash at each step", &["crash"]),
    ("Random operations against the model", &["model"]),
    ("Rates", &["bandwidth", "shape"]),
    ("Pods with lists of networks", &["multi"]),
    (
        "Devices of the device plugin",
        &["multi::device", "multi::devices"],
    ),
    ("VXLAN between nodes", &["across", "members"]),
    ("VLAN and trunk", &["across::vlan", "across::trunk"]),
    ("Native", &["across::native", "across::asked"]),
    (
        "XDP on the uplink",
        &["across::early", "across::steer", "early"],
    ),
    ("Egress", &["egress"]),
    ("Default network, routed by the node", &["native"]),
    ("memif ports and their switch", &["ports"]),
    (
        "memif against testpmd and libmemif",
        &["memif", "ports::libmemif"],
    ),
    ("AF_XDP ports", &["afxdp"]),
    ("AF_XDP ports with testpmd", &["afxdp::dpdk"]),
];
/// Modules of no feature: netlink, nf_tables and other mechanism.
const OTHERS: &str = "Netlink, nf_tables and other mechanism";

/// The last row.
const LEFT_OUT: &str = "Tests left out for want of time";

/// Makes the table; without runs it says so.
pub(super) fn of(runs: &BTreeMap<String, Run>) -> String {
    if runs.is_empty() {
        return "No run is recorded.\n".to_owned();
    }
    let mut kernels: Vec<(&String, &Run)> = runs.iter().collect();
    kernels.sort_by_key(|(_, run)| numbers(&run.release));
    let mut text = String::new();
    let mut row = |label: &str, cell: &dyn Fn(&Run) -> String| {
        let cells: Vec<String> = kernels.iter().map(|(_, run)| cell(run)).collect();
        writeln!(text, "| {label} | {} |", cells.join(" | ")).expect("a string takes all");
    };
    row("", &|run| format!("Linux {}", run.release));
    row("---", &|_| "---".to_owned());
    row("Commit", &|run| run.commit.clone());
    row("Date", &|run| run.date.clone());
    for (label, _) in ROWS {
        row(label, &|run| cell(sum(run, label)));
    }
    row(OTHERS, &|run| cell(sum(run, OTHERS)));
    row(LEFT_OUT, &|run| match run.left_out {
        0 => "none".to_owned(),
        count => count.to_string(),
    });
    text
}

/// Numbers of a release, to order kernels by.
fn numbers(release: &str) -> Vec<u32> {
    let parts = release.split(['.', '-', '+']);
    parts.map_while(|part| part.parse().ok()).collect()
}

/// Adds up the tests of a row.
fn sum(run: &Run, label: &str) -> Counts {
    let own = run
        .modules
        .iter()
        .filter(|(module, _)| row_of(module) == label);
    own.fold([0; 3], |[passed, failed, skipped], (_, counts)| {
        [passed + counts[0], failed + counts[1], skipped + counts[2]]
    })
}

/// Returns the row of a module: that with the longest fitting part.
fn row_of(module: &str) -> &'static str {
    let fits = |part: &str| {
        module
            .strip_prefix(part)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let best = ROWS
        .iter()
        .flat_map(|(label, parts)| parts.iter().map(move |part| (part, *label)))
        .filter(|(part, _)| fits(part))
        .max_by_key(|(part, _)| part.len());
    best.map_or(OTHERS, |(_, label)| label)
}

fn cell([passed, failed, skipped]: Counts) -> String {
    match (passed, failed, skipped) {
        (0, 0, 0) => "not run".to_owned(),
        (0, 0, skipped) => format!("{skipped} skipped"),
        (passed, 0, 0) => format!("{passed} passed"),
        (passed, 0, skipped) => format!("{passed} passed, {skipped} skipped"),
        (passed, failed, skipped) => {
            format!("**{failed} failed**, {passed} passed, {skipped} skipped")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(release: &str, modules: &[(&str, Counts)]) -> Run {
        Run {
            release: release.to_owned(),
            commit: "0123456789".to_owned(),
            date: "2026-11-25".to_owned(),
            left_out: 3,
            modules: modules
                .iter()
                .map(|(name, counts)| ((*name).to_owned(), *counts))
                .collect(),
        }
    }

    fn line<'a>(table: &'a str, label: &str) -> &'a str {
        let found = table
            .lines()
            .find(|line| line.starts_with(&format!("| {label} |")));
        found.unwrap_or_else(|| panic!("no row {label} in\n{table}"))
    }

    #[test]
    fn a_module_is_counted_in_the_row_that_fits_best_and_in_no_other() {
        let modules = [
            ("across::reach", [5, 0, 0]),
            ("across::vlan", [3, 0, 1]),
            ("native::reach", [2, 0, 0]),
            ("netfilter", [7, 0, 0]),
        ];
        let runs = BTreeMap::from([("5.10".to_owned(), run("5.10.0-36", &modules))]);
        let table = of(&runs);
        assert!(line(&table, "VXLAN between nodes").ends_with("| 5 passed |"));
        assert!(line(&table, "VLAN and trunk").ends_with("| 3 passed, 1 skipped |"));
        assert!(line(&table, "Native").ends_with("| not run |"));
        assert!(line(&table, "Default network, routed by the node").ends_with("| 2 passed |"));
        assert!(line(&table, OTHERS).ends_with("| 7 passed |"));
        assert!(line(&table, LEFT_OUT).ends_with("| 3 |"));
    }

    #[test]
    fn kernels_are_ordered_by_their_numbers_and_failures_stand_out() {
        let runs = BTreeMap::from([
            (
                "5.10".to_owned(),
                run("5.10.0-36", &[("cni::a", [1, 2, 3])]),
            ),
            ("6.1".to_owned(), run("6.1.0-40", &[])),
            ("host".to_owned(), run("6.18.44", &[])),
            ("sid".to_owned(), run("7.1.3", &[])),
            ("6.12".to_owned(), run("6.12.90", &[])),
        ]);
        let table = of(&runs);
        let head = table.lines().next().unwrap();
        let expected = ["5.10.0-36", "6.1.0-40", "6.12.90", "6.18.44", "7.1.3"];
        let expected = expected
            .map(|release| format!("Linux {release}"))
            .join(" | ");
        assert_eq!(head, format!("|  | {expected} |"));
        assert!(line(&table, "CNI").contains("**2 failed**, 1 passed, 3 skipped"));
    }
}
