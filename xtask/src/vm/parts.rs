//! The order in which a machine runs the tests.
//!
//! Where the time is short, a share of each program that asks much of a kernel runs before the rest of any:
//! a program that is cut short, or not begun, has been tried nevertheless.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use super::TestBinary;
use crate::step::capture;

/// The program that is over in seconds, whole.
const FIRST: [&str; 1] = ["netdev-kernel"];

/// Programs of which a share runs before the rest of any, in this order.
///
/// Nearly each of their tests loads and attaches the kernel programs.
const SHARED: [&str; 7] = [
    "datapath-kernel",
    "tests-attacks",
    "tests-isolation",
    "tests-ports",
    "tests-across",
    "tests-egress",
    "tests-afxdp",
];

/// Programs that run at the end, the long ones last.
///
/// They ask podnet more than the kernel, except `across`, of which a share has run.
const LAST: [&str; 8] = [
    "tests-native",
    "tests-memif",
    "tests-crash",
    "tests-model",
    "tests-multi",
    "tests-cni",
    "tests-across",
    "tests-policies",
];

/// Tests of a program in its share, evenly spread over the program's list.
const SHARE: usize = 6;

/// Tests of one program that run together.
#[derive(Debug)]
pub(super) struct Part {
    /// Names the part on the console.
    pub(super) label: String,
    pub(super) program: String,
    /// Of the test program.
    pub(super) arguments: Vec<String>,
    /// Where the tests were listed.
    pub(super) count: Option<u64>,
}

impl Part {
    /// The tests of `program` that `arguments` choose.
    pub(super) fn whole(program: &str, arguments: &[String]) -> Self {
        Self {
            label: program.to_owned(),
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            count: None,
        }
    }

    fn of(program: &str, which: &str, tests: Vec<String>) -> Option<Self> {
        let count = number(&tests);
        let exact = std::iter::once("--exact".to_owned());
        (count > 0).then(|| Self {
            label: format!("{program}.{which}"),
            program: program.to_owned(),
            arguments: exact.chain(tests).collect(),
            count: Some(count),
        })
    }
}

/// Programs of which a share runs before the rest of any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shares {
    /// Programs that ask much of a kernel.
    OfSome,
    /// All but what is over in seconds.
    OfEach,
}

impl Shares {
    fn are_of(self, program: &str) -> bool {
        match self {
            Self::OfSome => SHARED.contains(&program),
            Self::OfEach => !FIRST.contains(&program),
        }
    }
}

/// Plans the parts of `binaries` in the order of their run.
///
/// Shares are made where the time is limited and no arguments choose the tests: of some programs, or of each where
/// the run is to show something of everything.
pub(super) fn plan(
    binaries: &[TestBinary],
    filter: &[String],
    limited: Option<Shares>,
) -> Result<Vec<Part>> {
    let mut lists = BTreeMap::new();
    if limited.is_some() && filter.is_empty() {
        for binary in binaries {
            let mut list = Command::new(&binary.path);
            let list = capture(list.args(["--list", "--format", "terse"]))?;
            lists.insert(binary.name.clone(), listed(&list));
        }
    }
    let names = binaries.iter().map(|it| it.name.as_str());
    let shares = limited.unwrap_or(Shares::OfSome);
    Ok(ordered(names, filter, &lists, shares))
}

/// The names of tests in what `--list --format terse` prints.
fn listed(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

fn ordered<'a>(
    programs: impl Iterator<Item = &'a str>,
    filter: &[String],
    lists: &BTreeMap<String, Vec<String>>,
    shares: Shares,
) -> Vec<Part> {
    let mut parts = Vec::new();
    for program in programs {
        match lists.get(program) {
            None => parts.push((rank(program), Part::whole(program, filter))),
            Some(tests) if shares.are_of(program) => {
                let (share, rest) = split(tests);
                let early = (1, place(&SHARED, program).unwrap_or(SHARED.len()));
                parts.extend(Part::of(program, "share", share).map(|part| (early, part)));
                parts.extend(Part::of(program, "rest", rest).map(|part| (rank(program), part)));
            }
            Some(tests) => {
                let mut part = Part::whole(program, &[]);
                part.count = Some(number(tests));
                parts.push((rank(program), part));
            }
        }
    }
    parts.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.label.cmp(&b.label)));
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Returns the rank of a program; that of a share is 1.
///
/// Rests of those whose share runs earlier are ranked, too.
fn rank(program: &str) -> (usize, usize) {
    let lists: [(usize, &[&str]); 3] = [(0, &FIRST), (4, &LAST), (2, &SHARED)];
    lists
        .into_iter()
        .find_map(|(round, list)| Some((round, place(list, program)?)))
        .unwrap_or((3, 0))
}

fn place(list: &[&str], program: &str) -> Option<usize> {
    list.iter().position(|one| *one == program)
}

fn number(tests: &[String]) -> u64 {
    u64::try_from(tests.len()).unwrap_or(u64::MAX)
}

/// The share of a program and the rest.
fn split(tests: &[String]) -> (Vec<String>, Vec<String>) {
    let step = tests.len().div_ceil(SHARE).max(1);
    let numbered = tests.iter().cloned().enumerate();
    let (share, rest): (Vec<_>, Vec<_>) = numbered.partition(|(index, _)| index % step == 0);
    let names = |list: Vec<(usize, String)>| list.into_iter().map(|(_, name)| name).collect();
    (names(share), names(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(count: usize) -> Vec<String> {
        (0..count).map(|it| format!("a::t{it}")).collect()
    }

    fn labels(parts: &[Part]) -> Vec<&str> {
        parts.iter().map(|part| part.label.as_str()).collect()
    }

    const ALL: [&str; 7] = [
        "netdev-kernel",
        "tests-across",
        "tests-attacks",
        "tests-cni",
        "tests-members",
        "datapath-kernel",
        "tests-isolation",
    ];

    #[test]
    fn a_share_of_what_asks_much_of_a_kernel_runs_before_the_rest_of_any() {
        let lists = ALL.map(|name| (name.to_owned(), tests(20)));
        let parts = ordered(ALL.into_iter(), &[], &BTreeMap::from(lists), Shares::OfSome);
        let wanted = [
            "netdev-kernel",
            "datapath-kernel.share",
            "tests-attacks.share",
            "tests-isolation.share",
            "tests-across.share",
            "datapath-kernel.rest",
            "tests-attacks.rest",
            "tests-isolation.rest",
            "tests-members",
            "tests-cni",
            "tests-across.rest",
        ];
        assert_eq!(labels(&parts), wanted);
        let count = |program: &str| {
            let of = parts.iter().filter(|part| part.program == program);
            of.map(|part| part.count.unwrap()).sum::<u64>()
        };
        assert_eq!(ALL.map(count), [20; 7]);
    }

    #[test]
    fn each_program_has_a_share_before_the_rest_of_any_where_all_is_to_be_shown() {
        let lists = ALL.map(|name| (name.to_owned(), tests(20)));
        let parts = ordered(ALL.into_iter(), &[], &BTreeMap::from(lists), Shares::OfEach);
        let shares = parts.iter().filter(|part| part.label.ends_with(".share"));
        assert_eq!(shares.count(), ALL.len() - 1);
        let first = |end: &str| parts.iter().position(|part| part.label.ends_with(end));
        let last = parts
            .iter()
            .rposition(|part| part.label.ends_with(".share"));
        assert!(last < first(".rest"), "{:?}", labels(&parts));
        assert_eq!(parts[0].label, "netdev-kernel");
    }

    #[test]
    fn programs_without_a_list_are_whole_and_have_the_arguments() {
        let filter = ["vlan".to_owned()];
        let parts = ordered(ALL.into_iter(), &filter, &BTreeMap::new(), Shares::OfSome);
        let wanted = [
            "netdev-kernel",
            "datapath-kernel",
            "tests-attacks",
            "tests-isolation",
            "tests-members",
            "tests-cni",
            "tests-across",
        ];
        assert_eq!(labels(&parts), wanted);
        assert!(parts.iter().all(|part| part.arguments == filter));
    }

    #[test]
    fn a_share_is_spread_over_the_list_and_no_test_is_lost_or_run_twice() {
        for count in [0, 1, 5, 6, 7, 31, 68] {
            let (share, rest) = split(&tests(count));
            assert!(share.len() <= SHARE, "{count}: {share:?}");
            let mut all = [share, rest].concat();
            all.sort_by_key(|name| name["a::t".len()..].parse::<usize>().unwrap());
            assert_eq!(all, tests(count));
        }
        assert_eq!(split(&tests(60)).0[5], "a::t50");
    }

    #[test]
    fn a_program_without_a_rest_is_one_part() {
        let lists = BTreeMap::from([("tests-ports".to_owned(), tests(4))]);
        let parts = ordered(["tests-ports"].into_iter(), &[], &lists, Shares::OfSome);
        assert_eq!(labels(&parts), ["tests-ports.share"]);
        assert_eq!(parts[0].arguments[..2], ["--exact", "a::t0"]);
    }

    #[test]
    fn names_are_read_from_the_list_of_a_test_program() {
        let text = "a::b: test\nsrc/lib.rs - x (line 3): test\nc: benchmark\n";
        assert_eq!(listed(text), ["a::b", "src/lib.rs - x (line 3)"]);
    }
}
