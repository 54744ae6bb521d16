//! Stop the machine at every step, and lose every part of the unflushed writes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{
    Batch, Row, Store, Table,
    fake::{Disk, Fault, Survivors},
};

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A batch as data, over few keys so that they collide.
#[derive(Clone, Debug)]
pub(super) struct Plan(pub(super) Vec<(u8, Option<u8>)>);

impl Plan {
    /// Values of 1 to 3 kB, so that a handful of them splits pages.
    fn value(value: u8) -> Vec<u8> {
        vec![value; 1000 + 8 * usize::from(value)]
    }

    pub(super) fn batch(&self) -> Batch {
        self.0
            .iter()
            .fold(Batch::new(), |batch, (key, value)| match value {
                Some(value) => batch.put(Table::Attachments, &[*key], &Self::value(*value)),
                None => batch.delete(Table::Attachments, &[*key]),
            })
    }

    pub(super) fn apply(&self, model: &mut Model) {
        for (key, value) in &self.0 {
            match value {
                Some(value) => drop(model.insert(vec![*key], Self::value(*value))),
                None => drop(model.remove([*key].as_slice())),
            }
        }
    }
}

/// The rows after each number of batches, from none to all.
fn history(plans: &[Plan]) -> Vec<Vec<Row>> {
    let mut model = Model::new();
    let mut states = vec![Vec::new()];
    for plan in plans {
        plan.apply(&mut model);
        states.push(model.clone().into_iter().collect());
    }
    states
}

/// How batches are handed in.
#[derive(Clone, Copy, Debug)]
enum Callers {
    /// Each waits for the one before.
    OneByOne,
    /// All at once, so that they share commits.
    Together,
}

/// Writes all batches and counts the durable ones, none after a failed one.
fn write(store: &Store, plans: &[Plan], callers: Callers) -> usize {
    let results: Vec<_> = match callers {
        Callers::OneByOne => plans
            .iter()
            .map(|plan| store.commit(plan.batch()))
            .collect(),
        Callers::Together => {
            let pending: Vec<_> = plans
                .iter()
                .map(|plan| store.submit(plan.batch()))
                .collect();
            pending.into_iter().map(crate::Pending::wait).collect()
        }
    };
    let reported = results.iter().take_while(|result| result.is_ok()).count();
    assert!(
        results[reported..].iter().all(Result::is_err),
        "a batch after a failed one succeeded"
    );
    reported
}

/// A copy of a disk that lost nothing.
pub(super) fn copy(disk: &Disk) -> Disk {
    disk.after_crash(Survivors::All)
}

pub(super) fn rows(disk: &Disk) -> Vec<Row> {
    let store = disk.open().expect("a crash leaves a readable store");
    store.rows(Table::Attachments).expect("readable")
}

/// Runs the whole history with `fault`, and checks every state the disk may have.
fn crash_once(empty: &Disk, plans: &[Plan], callers: Callers, fault: Fault, seed: u64) {
    let states = history(plans);
    let disk = copy(empty);
    disk.set_fault(fault);
    let reported = disk.open().map_or(0, |store| write(&store, plans, callers));
    for survivors in [
        Survivors::None,
        Survivors::All,
        Survivors::Some(seed),
        Survivors::Some(seed ^ 0x5555_5555),
    ] {
        let found = rows(&disk.after_crash(survivors));
        assert!(
            states[reported..].contains(&found),
            "{fault:?}, {survivors:?}: {reported} of {} batches were reported, found keys {:?}",
            plans.len(),
            found.iter().map(|(key, _)| key).collect::<Vec<_>>()
        );
    }
}

/// Steps of a run without faults, opening and closing included.
fn steps(empty: &Disk, plans: &[Plan], callers: Callers) -> u64 {
    let disk = copy(empty);
    let store = disk.open().unwrap();
    assert_eq!(write(&store, plans, callers), plans.len());
    drop(store);
    assert_eq!(Some(&rows(&disk)), history(plans).last());
    disk.steps()
}

pub(super) fn plan(length: usize) -> impl Strategy<Value = Plan> {
    let change = (0_u8..6, proptest::option::weighted(0.7, any::<u8>()));
    proptest::collection::vec(change, 1..=length).prop_map(Plan)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, ..ProptestConfig::default() })]

    #[test]
    fn a_crash_at_any_step_keeps_what_was_reported_and_no_half_batch(
        plans in proptest::collection::vec(plan(3), 1..4),
        seed: u64,
    ) {
        let empty = Disk::with_store().unwrap();
        for step in 0..steps(&empty, &plans, Callers::OneByOne) {
            let seed = seed.wrapping_add(step);
            crash_once(&empty, &plans, Callers::OneByOne, Fault::CrashAt(step), seed);
        }
    }

    /// How batches fall into groups varies from run to run; every way must hold.
    #[test]
    fn a_crash_while_batches_share_commits_keeps_their_order(
        plans in proptest::collection::vec(plan(2), 4..12),
        seed: u64,
    ) {
        let empty = Disk::with_store().unwrap();
        for step in 0..steps(&empty, &plans, Callers::Together) {
            let seed = seed.wrapping_add(step);
            crash_once(&empty, &plans, Callers::Together, Fault::CrashAt(step), seed);
        }
    }

    /// A write that fails, with the machine going on, and then stopping.
    #[test]
    fn a_failing_write_loses_nothing_that_was_reported(
        plans in proptest::collection::vec(plan(3), 1..4),
        seed: u64,
    ) {
        let empty = Disk::with_store().unwrap();
        for step in 0..steps(&empty, &plans, Callers::OneByOne) {
            for fault in [Fault::FailAt(step), Fault::FailFrom(step)] {
                crash_once(&empty, &plans, Callers::OneByOne, fault, seed.wrapping_add(step));
            }
        }
    }

    #[test]
    fn a_crash_while_recovering_from_a_crash_loses_nothing(
        plans in proptest::collection::vec(plan(3), 2..5),
        at in 0.3..1.0_f64,
        seed: u64,
    ) {
        let empty = Disk::with_store().unwrap();
        let states = history(&plans);
        let total = steps(&empty, &plans, Callers::OneByOne);
        // Any step in the later part of the run, without arithmetic on floats.
        let step = (0..total).find(|&step| f64::from(u32::try_from(step).unwrap())
            >= at * f64::from(u32::try_from(total - 1).unwrap())).unwrap();
        let disk = copy(&empty);
        disk.set_fault(Fault::CrashAt(step));
        let reported = disk.open().map_or(0, |store| write(&store, &plans, Callers::OneByOne));
        let crashed = disk.after_crash(Survivors::Some(seed));
        let recovery = {
            let disk = copy(&crashed);
            drop(disk.open().unwrap());
            disk.steps()
        };
        for step in 0..recovery {
            let disk = copy(&crashed);
            disk.set_fault(Fault::CrashAt(step));
            drop(disk.open());
            for survivors in [Survivors::None, Survivors::All, Survivors::Some(seed ^ step)] {
                let found = rows(&disk.after_crash(survivors));
                prop_assert!(states[reported..].contains(&found), "step {step}, {survivors:?}");
            }
        }
    }
}
