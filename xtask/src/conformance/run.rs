//! Compare the page with what tests of a run have checked in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use super::scan::Proof;
use crate::test::Tally;

/// Where a test runs: the tiers of `cargo xtask test` that its file is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// Tests without root, of all packages.
    Unit,
    /// Tests with root on this machine.
    Netns,
    /// Tests with a real API server.
    Kubernetes,
    /// Tests in a cluster of two nodes.
    ///
    /// Some of them are in no run but that of `cargo xtask cluster test`.
    Cluster,
}

/// Tests of a run by their results, without those in virtual machines.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Tiers all of whose tests have run, and passed.
    tiers: BTreeSet<Tier>,
    /// Tests that passed, by the names that libtest gives them.
    passed: BTreeSet<String>,
    /// Tests that failed.
    failed: BTreeSet<String>,
    /// Tests that were skipped, and why.
    skipped: BTreeMap<String, String>,
}

/// A check-in: requirement, test as libtest names it, file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CheckIn {
    id: String,
    test: String,
    file: String,
}

/// Result of the comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Requirements that were proved.
    pub(super) proved: BTreeSet<String>,
    /// Requirements of which no test has run, and why not.
    pub(super) not_run: BTreeMap<String, String>,
    /// Proofs that are on the page and are none.
    pub(super) problems: Vec<String>,
}

impl Run {
    /// Notes the end of a tier's stage, which gives nothing when it failed.
    ///
    /// Of such a one nobody knows which tests have not run, and the run has failed already.
    pub(crate) fn ended(&mut self, tier: Tier, done: Option<()>) {
        self.tiers.extend(done.map(|()| tier));
    }

    /// Names of tests that passed.
    #[cfg(test)]
    pub(crate) fn passed(&self) -> impl Iterator<Item = &str> {
        self.passed.iter().map(String::as_str)
    }

    /// Adds the tests of one stage.
    pub(crate) fn add(&mut self, tally: &Tally) {
        self.passed.extend(tally.ran.iter().cloned());
        self.failed.extend(tally.failures.keys().cloned());
        let skipped = tally.skipped.iter();
        self.skipped
            .extend(skipped.map(|(test, reason)| (test.clone(), reason.clone())));
    }
}

impl Tier {
    fn of(file: &str) -> Self {
        let is_in = |name: &str| {
            file.strip_prefix("tests/tests/")
                .and_then(|rest| rest.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with(['/', '.']))
        };
        if is_in("kubernetes") {
            Tier::Kubernetes
        } else if is_in("e2e") {
            Tier::Cluster
        } else if file.starts_with("tests/tests/") || file.starts_with("crates/datapath/tests/") {
            Tier::Netns
        } else {
            Tier::Unit
        }
    }

    fn name(self) -> &'static str {
        match self {
            Tier::Unit => "unit",
            Tier::Netns => "netns",
            Tier::Kubernetes => "kubernetes",
            Tier::Cluster => "cluster",
        }
    }
}

/// Reads the check-ins that test processes have left in a directory.
///
/// # Errors
/// A file cannot be read, or a line of it is no check-in.
pub(super) fn read(directory: &Path) -> Result<BTreeSet<CheckIn>> {
    let mut found = BTreeSet::new();
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error).context(format!("reading {}", directory.display())),
    };
    for entry in entries {
        let path = entry?.path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for line in text.lines() {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            let (Some(id), Some(test), Some(file)) = (words.next(), words.next(), words.next())
            else {
                anyhow::bail!("{}: `{line}` is no check-in", path.display());
            };
            found.insert(CheckIn { id, test, file });
        }
    }
    Ok(found)
}

/// Compares proofs that are in the sources with what tests have checked in.
///
/// A check-in counts when its test passed. A proof without one has to have a reason: its test was skipped or
/// has failed, or its tier did not run.
pub(super) fn compare(
    proofs: &BTreeSet<Proof>,
    check_ins: &BTreeSet<CheckIn>,
    run: &Run,
) -> Outcome {
    let counting: BTreeSet<(&str, &str, &str)> = check_ins
        .iter()
        .filter(|one| run.passed.contains(&one.test))
        .map(|one| (one.id.as_str(), one.file.as_str(), last(&one.test)))
        .collect();
    let mut outcome = Outcome::default();
    let mut reasons: BTreeMap<&str, String> = BTreeMap::new();
    for proof in proofs {
        let is_proved = counting.iter().any(|(id, file, test)| {
            *id == proof.id
                && *file == proof.file
                && (*test == proof.test || proof.test.ends_with('!'))
        });
        if is_proved {
            outcome.proved.insert(proof.id.clone());
            continue;
        }
        match excuse(proof, run) {
            Ok(reason) => {
                reasons.insert(&proof.id, reason);
            }
            Err(problem) => outcome.problems.push(format!(
                "{}: {} is on the page as proof of {}, and {problem}",
                proof.file, proof.test, proof.id
            )),
        }
    }
    for (id, reason) in reasons {
        if !outcome.proved.contains(id) {
            outcome.not_run.insert(id.to_owned(), reason);
        }
    }
    outcome
}

/// Why a proof has no check-in.
///
/// # Errors
/// It should have one, and what is wrong.
fn excuse(proof: &Proof, run: &Run) -> Result<String, String> {
    let is_it = |name: &&String| is_in(proof, name);
    if run.passed.iter().any(|name| is_in(proof, name)) {
        return Err("passes without a check-in".to_owned());
    }
    if let Some((_, reason)) = run.skipped.iter().find(|(name, _)| is_it(name)) {
        return Ok(format!("skipped: {reason}"));
    }
    if run.failed.iter().any(|name| is_in(proof, name)) {
        return Ok("its test failed".to_owned());
    }
    let tier = Tier::of(&proof.file);
    if tier != Tier::Cluster && run.tiers.contains(&tier) {
        return Err(format!(
            "is not among the tests of the tier {}",
            tier.name()
        ));
    }
    Ok(format!("not a part of this run: tier {}", tier.name()))
}

/// Whether a name of libtest's can be that of a proof's test.
///
/// Its modules are folders and files, but for `tests`.
fn is_in(proof: &Proof, name: &str) -> bool {
    let places: Vec<&str> = proof
        .file
        .trim_end_matches(".rs")
        .split('/')
        .chain(["tests"])
        .collect();
    let Some((modules, test)) = name.rsplit_once("::") else {
        return name == proof.test;
    };
    test == proof.test && modules.split("::").all(|module| places.contains(&module))
}

/// The name of a test without its modules.
fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "tests/tests/cni/s4_add.rs";
    const NAME: &str = "cni::s4_add::it_works";

    fn proofs() -> BTreeSet<Proof> {
        BTreeSet::from([Proof {
            id: "A-1".to_owned(),
            file: FILE.to_owned(),
            test: "it_works".to_owned(),
        }])
    }

    fn check_in() -> BTreeSet<CheckIn> {
        BTreeSet::from([CheckIn {
            id: "A-1".to_owned(),
            test: NAME.to_owned(),
            file: FILE.to_owned(),
        }])
    }

    fn run() -> Run {
        Run {
            tiers: BTreeSet::from([Tier::Netns]),
            ..Run::default()
        }
    }

    #[test]
    fn a_check_in_counts_when_its_test_passed() {
        let mut run = run();
        run.passed.insert(NAME.to_owned());
        let outcome = compare(&proofs(), &check_in(), &run);
        assert_eq!(outcome.proved, BTreeSet::from(["A-1".to_owned()]));
        assert_eq!((outcome.problems.len(), outcome.not_run.len()), (0, 0));
        // It failed after its check-in.
        let mut run = self::run();
        run.failed.insert(NAME.to_owned());
        let outcome = compare(&proofs(), &check_in(), &run);
        assert_eq!(outcome.proved.len(), 0);
        assert_eq!(outcome.not_run["A-1"], "its test failed");
    }

    #[test]
    fn a_test_that_passes_without_its_check_in_is_a_problem() {
        let mut run = run();
        run.passed.insert(NAME.to_owned());
        let outcome = compare(&proofs(), &BTreeSet::new(), &run);
        assert!(outcome.problems[0].ends_with("passes without a check-in"));
        // Another test of this name does not speak for it.
        run.passed = BTreeSet::from(["cni::s5_del::it_works".to_owned()]);
        let outcome = compare(&proofs(), &BTreeSet::new(), &run);
        assert!(outcome.problems[0].ends_with("not among the tests of the tier netns"));
    }

    #[test]
    fn a_proof_that_did_not_run_has_a_reason() {
        let mut failed = Run::default();
        failed.ended(Tier::Netns, None);
        let outcome = compare(&proofs(), &BTreeSet::new(), &failed);
        assert_eq!(outcome.problems, [""; 0]);
        let mut run = run();
        run.skipped.insert(NAME.to_owned(), "needs tcx".to_owned());
        let outcome = compare(&proofs(), &BTreeSet::new(), &run);
        assert_eq!(outcome.not_run["A-1"], "skipped: needs tcx");
        let outcome = compare(&proofs(), &BTreeSet::new(), &Run::default());
        assert_eq!(outcome.not_run["A-1"], "not a part of this run: tier netns");
    }

    #[test]
    fn tests_that_a_macro_makes_are_told_by_their_file() {
        let mut proofs = proofs();
        let golden = proofs.pop_first().map(|proof| Proof {
            test: "golden!".to_owned(),
            ..proof
        });
        let mut run = run();
        run.passed.insert(NAME.to_owned());
        let outcome = compare(&golden.into_iter().collect(), &check_in(), &run);
        assert_eq!(outcome.proved.len(), 1);
    }

    #[test]
    fn a_file_is_of_the_tier_that_runs_it() {
        for (file, tier) in [
            ("agent/src/book.rs", Tier::Unit),
            ("crates/uswitch/tests/switch.rs", Tier::Unit),
            ("crates/datapath/tests/kernel/answers.rs", Tier::Netns),
            (FILE, Tier::Netns),
            ("tests/tests/kubernetes.rs", Tier::Kubernetes),
            (
                "tests/tests/kubernetes/controller/gate.rs",
                Tier::Kubernetes,
            ),
            ("tests/tests/e2e/egress.rs", Tier::Cluster),
        ] {
            assert_eq!(Tier::of(file), tier, "{file}");
        }
    }

    #[test]
    fn check_ins_of_all_processes_are_read() {
        let directory = std::env::temp_dir().join(format!("podnet-run-{}", std::process::id()));
        assert_eq!(read(&directory).unwrap(), BTreeSet::new());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("1"), format!("A-1 {NAME} {FILE}\n")).unwrap();
        fs::write(
            directory.join("2"),
            format!("A-1 {NAME} {FILE}\nA-2 b b.rs\n"),
        )
        .unwrap();
        let found = read(&directory);
        fs::write(directory.join("3"), "A-1 b\n").unwrap();
        let wrong = read(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found.unwrap().len(), 2);
        assert!(
            wrong
                .unwrap_err()
                .to_string()
                .contains("`A-1 b` is no check-in")
        );
    }
}
