//! Log what is wrong with policies, once for each change of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policy::PolicyId;

use crate::parsed::Parsed;

/// Policies that one line names.
const NAMED: usize = 3;
/// Lines of one change; the tables of `get policies` have the rest.
const LINES: usize = 32;

/// Policies by the problem that they have.
type Problems = BTreeMap<String, BTreeSet<PolicyId>>;

/// Problems that were logged, each with the policies that have it.
///
/// Many policies have the same one, and a node has one line about them all.
#[derive(Debug)]
pub(crate) struct Told {
    problems: Problems,
    /// Problems of policies for the default network.
    ///
    /// Others may obey them: they are no fault.
    left: Problems,
    /// The policies that have them.
    of: Option<Arc<Parsed>>,
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    policies: String,
    problem: String,
}

impl Told {
    /// Nothing was looked at yet.
    pub(crate) const fn new() -> Self {
        Self {
            problems: BTreeMap::new(),
            left: BTreeMap::new(),
            of: None,
        }
    }

    /// Counts problems of policies for networks of podnet, at each policy.
    pub(crate) fn count(&self) -> usize {
        self.problems.values().map(BTreeSet::len).sum()
    }

    /// Takes the problems as they are now, and logs those that are new.
    pub(crate) fn tell(&mut self, parsed: &Arc<Parsed>) {
        if self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, parsed)) {
            return;
        }
        self.of = Some(Arc::clone(parsed));
        let (mut problems, mut left) = (Problems::new(), Problems::new());
        for (object, read, place) in parsed.all() {
            let to = if place.is_left_to_others {
                &mut left
            } else {
                &mut problems
            };
            let of_rules = read.problems.iter().map(ToString::to_string);
            let others = object.problems.iter().chain(&place.problems).cloned();
            for problem in others.chain(of_rules) {
                let policies = to.entry(problem).or_default();
                policies.insert(read.policy.id.clone());
            }
        }
        let lines = change(&mut self.problems, problems);
        let more = lines.len().saturating_sub(LINES);
        for Line { policies, problem } in lines.into_iter().take(LINES) {
            tracing::warn!(
                policies,
                problem,
                "policies are not obeyed as they are written: podnet-agent get policies tells of each"
            );
        }
        if more > 0 {
            tracing::warn!(
                more,
                "more problems of policies are not logged: podnet-agent get policies has them"
            );
        }
        for Line { policies, problem } in change(&mut self.left, left).into_iter().take(LINES) {
            tracing::info!(policies, problem, "policies are left to others");
        }
    }
}

/// Replaces the problems, and returns a line for each that some policy has newly.
fn change(problems: &mut Problems, now: Problems) -> Vec<Line> {
    let before = std::mem::replace(problems, now);
    let none = BTreeSet::new();
    let changed = problems.iter().filter_map(|(problem, policies)| {
        let before = before.get(problem).unwrap_or(&none);
        let new: Vec<&PolicyId> = policies.difference(before).collect();
        let (first, rest) = new.split_at_checked(NAMED).unwrap_or((&new, &[]));
        let named: Vec<String> = first.iter().map(ToString::to_string).collect();
        let mut named = named.join(", ");
        if !rest.is_empty() {
            named.push_str(&format!(" and {} more", rest.len()));
        }
        (!new.is_empty()).then(|| Line {
            policies: named,
            problem: problem.clone(),
        })
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use policy::Kind;

    use super::*;

    fn ids(names: &[&str]) -> BTreeSet<PolicyId> {
        let id = |name: &&str| PolicyId {
            kind: Kind::NetworkPolicy,
            namespace: "shop".to_owned(),
            name: (*name).to_owned(),
        };
        names.iter().map(id).collect()
    }

    fn lines(told: &mut Told, now: &[(&str, &[&str])]) -> Vec<(String, String)> {
        let now = now
            .iter()
            .map(|(problem, names)| ((*problem).to_owned(), ids(names)));
        let lines = change(&mut told.problems, now.collect());
        lines
            .into_iter()
            .map(|it| (it.problem, it.policies))
            .collect()
    }

    #[test]
    fn a_problem_is_told_once_for_each_policy_that_gets_it() {
        let mut told = Told::new();
        let line = |problem: &str, policies: &str| (problem.to_owned(), policies.to_owned());
        let first = lines(
            &mut told,
            &[("late", &["a"]), ("lost", &["a", "b", "c", "d", "e"])],
        );
        let named = "NetworkPolicy shop/a, NetworkPolicy shop/b, NetworkPolicy shop/c and 2 more";
        assert_eq!(
            first,
            [line("late", "NetworkPolicy shop/a"), line("lost", named)]
        );
        assert_eq!(told.count(), 6);
        assert!(lines(&mut told, &[("late", &["a"]), ("lost", &["a", "b"])]).is_empty());
        let again = lines(&mut told, &[("lost", &["a", "b", "e"])]);
        assert_eq!(again, [line("lost", "NetworkPolicy shop/e")]);
        assert!(lines(&mut told, &[]).is_empty());
        assert_eq!(told.count(), 0);
        assert_eq!(
            lines(&mut told, &[("late", &["a"])]).len(),
            1,
            "it was away"
        );
    }
}
