//! Bits that change on the disk unnoticed.

use std::panic::{self, AssertUnwindSafe};

use proptest::prelude::*;

use super::put;
use crate::{
    Row, StoreError, Table,
    fake::{Disk, Survivors},
};

fn read(disk: &Disk) -> Result<Vec<Row>, StoreError> {
    disk.open()?.rows(Table::Attachments)
}

/// A store of a few pages, closed in good order.
fn written() -> Disk {
    let disk = Disk::with_store().unwrap();
    let store = disk.open().unwrap();
    for n in 0..40 {
        store.commit(put(&n.to_string(), &"x".repeat(400))).unwrap();
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// A flipped bit is harmless, or the store refuses to open.
    ///
    /// redb loads its free-page lists before it verifies them, and one in some hundred flips makes it
    /// panic there: that counts as refused, because the process stops before it believes anything.
    #[test]
    fn a_flipped_bit_is_harmless_or_refused_and_never_believed(seed: u64) {
        let disk = written();
        let whole = read(&disk).unwrap();
        let mut place = seed;
        for _ in 0..40 {
            let damaged = disk.after_crash(Survivors::All);
            // Knuth's multiplicative step: spreads the flips over the whole disk.
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bits = u64::try_from(disk.size() * 8).unwrap();
            damaged.flip(usize::try_from((place >> 16) % bits).unwrap());
            if let Ok(Ok(found)) = panic::catch_unwind(AssertUnwindSafe(|| read(&damaged))) {
                prop_assert_eq!(&found, &whole);
            }
        }
    }
}
