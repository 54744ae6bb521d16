//! A disk that is full, or fails, for a while: the store goes on when that is over.

use proptest::prelude::*;

use super::crash::{Model, Plan, copy, plan, rows};
use crate::{
    Batch, Contents, Row, StoreError, Table,
    fake::{Disk, Fault, Survivors},
};

/// Builds the batch after which a store has these rows, and no others.
fn restore(contents: &Contents<'_>, wanted: &Model) -> Result<Batch, StoreError> {
    let found: Model = contents.rows(Table::Attachments)?.into_iter().collect();
    let mut batch = Batch::new();
    for (key, value) in wanted {
        if found.get(key) != Some(value) {
            batch = batch.put(Table::Attachments, key, value);
        }
    }
    for key in found.keys().filter(|key| !wanted.contains_key(*key)) {
        batch = batch.delete(Table::Attachments, key);
    }
    Ok(batch)
}

fn listed(model: &Model) -> Vec<Row> {
    model.clone().into_iter().collect()
}

/// Writes every batch, opening the store again after each failure.
///
/// A batch that failed is not written again. Returns the acknowledged rows, and whether the fault was
/// met.
fn write(disk: &Disk, plans: &[Plan], fault: Fault, mended: bool) -> (Model, bool) {
    let store = disk.open().expect("the fault comes later");
    disk.set_fault(fault);
    let (mut model, mut met) = (Model::new(), false);
    for plan in plans {
        match store.commit(plan.batch()) {
            Ok(()) => plan.apply(&mut model),
            Err(_) => {
                met = true;
                let mut whole = model.clone();
                plan.apply(&mut whole);
                let mut attempts = 0;
                loop {
                    let mend = |contents: &Contents<'_>| {
                        let found = contents.rows(Table::Attachments)?;
                        // All of the batch that failed, or nothing of it.
                        assert!(
                            found == listed(&model) || found == listed(&whole),
                            "{fault:?}"
                        );
                        if mended {
                            restore(contents, &model)
                        } else {
                            model = found.into_iter().collect();
                            Ok(Batch::new())
                        }
                    };
                    match store.reopen(mend) {
                        Ok(done) => break assert!(done),
                        Err(_) => attempts += 1,
                    }
                    assert!(attempts < 1000, "{fault:?}: it does not come back");
                }
            }
        }
        assert_eq!(store.rows(Table::Attachments).unwrap(), listed(&model));
    }
    assert!(store.failure().is_none());
    assert_eq!(store.failures(), u64::from(met), "it failed once");
    drop(store);
    (model, met)
}

/// Steps of a run without faults, opening and closing not included.
fn steps(empty: &Disk, plans: &[Plan]) -> std::ops::Range<u64> {
    let disk = copy(empty);
    let store = disk.open().unwrap();
    let first = disk.steps();
    for plan in plans {
        store.commit(plan.batch()).unwrap();
    }
    first..disk.steps()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, ..ProptestConfig::default() })]

    /// ATT-05: a disk that fills up at any time ends with the acknowledged rows alone.
    ///
    /// So it does whenever there is room again, also when the machine stops right then.
    #[test]
    fn a_disk_that_was_full_for_a_while_holds_exactly_what_was_acknowledged(
        plans in proptest::collection::vec(plan(3), 2..4),
        seed: u64,
    ) {
        let empty = Disk::with_store().unwrap();
        for from in steps(&empty, &plans) {
            for length in [1, 2, 5, 17] {
                let fault = Fault::FailBetween(from, from + length);
                for mended in [true, false] {
                    let disk = copy(&empty);
                    let (model, met) = write(&disk, &plans, fault, mended);
                    prop_assert!(met);
                    for survivors in [Survivors::None, Survivors::All, Survivors::Some(seed)] {
                        prop_assert_eq!(rows(&disk.after_crash(survivors)), listed(&model));
                    }
                }
            }
        }
        proof::of!("ATT-05");
    }

    /// ATT-05: data that the kernel gave up to write back is written again.
    ///
    /// Otherwise the next crash would find a store that was built on it.
    #[test]
    fn a_flush_that_failed_takes_nothing_of_what_is_acknowledged_later(
        plans in proptest::collection::vec(plan(3), 2..4),
        seed: u64,
    ) {
        let empty = Disk::with_store().unwrap();
        for at in steps(&empty, &plans) {
            for mended in [true, false] {
                let disk = copy(&empty);
                let (model, met) = write(&disk, &plans, Fault::ForgetAt(at), mended);
                prop_assert!(met);
                for survivors in [Survivors::None, Survivors::All, Survivors::Some(seed)] {
                    prop_assert_eq!(rows(&disk.after_crash(survivors)), listed(&model));
                }
            }
        }
        proof::of!("ATT-05");
    }
}
