//! Which interface of the pod belongs to which attachment.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ifname::InterfaceName,
    problem::{Findings, Place, SelectionProblem},
};

/// Names that were asked for, with their claimants.
#[derive(Default)]
pub(super) struct Claims(BTreeMap<InterfaceName, String>);

impl Claims {
    /// Keeps `name` for something that is in no list.
    pub(super) fn reserve(&mut self, name: &InterfaceName, holder: &str) {
        self.0.insert(name.clone(), holder.to_owned());
    }

    /// Claims `name`, or notes an error when another attachment has it.
    ///
    /// NPWG §4.1.2.1.5, KEP-3698 "Static validations".
    pub(super) fn claim(
        &mut self,
        findings: &mut Findings,
        place: &Place,
        name: Option<&InterfaceName>,
    ) {
        let Some(name) = name else { return };
        match self.0.get(name) {
            None => {
                let holder = format!("{}{place}", findings.annotation);
                self.0.insert(name.clone(), holder);
            }
            Some(holder) => {
                let problem = SelectionProblem::InterfaceTwice {
                    name: name.clone(),
                    holder: holder.clone(),
                };
                findings.push(place.below(problem_key(findings.annotation)), problem);
            }
        }
    }
}

/// The key of an interface's name in the list of this annotation.
pub(super) fn problem_key(annotation: &str) -> &'static str {
    match annotation {
        super::POD_NETWORKS_ANNOTATION => "interfaceName",
        super::NICS_ANNOTATION => "name",
        _ => "interface",
    }
}

/// Names all attachments: as asked for, `primary` at `first`, and `net<n>`.
///
/// The n-th of the others is `net<n>` where that is free, so that a name given to one attachment does not
/// move the others; one whose number is taken gets the lowest that is left.
pub(super) fn name_all(
    wanted: &[Option<InterfaceName>],
    first: usize,
    primary: &InterfaceName,
) -> Vec<InterfaceName> {
    let mut taken: BTreeSet<InterfaceName> = wanted.iter().flatten().cloned().collect();
    let mut names: Vec<Option<InterfaceName>> = Vec::new();
    let mut others = 0;
    for (index, wanted) in wanted.iter().enumerate() {
        if index != first {
            others += 1;
        }
        let name = match wanted {
            Some(name) => Some(name.clone()),
            None if index == first => Some(primary.clone()),
            None => Some(InterfaceName::generated(others)).filter(|own| !taken.contains(own)),
        };
        taken.extend(name.clone());
        names.push(name);
    }
    let mut left = (1..).map(InterfaceName::generated);
    let mut next_free = || loop {
        // There are always numbers left: far fewer are taken than there are.
        match left.next() {
            Some(name) if !taken.contains(&name) => return name,
            Some(_) => {}
            None => return primary.clone(),
        }
    };
    names
        .into_iter()
        .map(|name| name.unwrap_or_else(&mut next_free))
        .collect()
}
