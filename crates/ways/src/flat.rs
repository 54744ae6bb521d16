//! Store few entries for many look-ups, by open addressing.
//!
//! An entry is at its key's hash, or in the first empty place after it. Half of the places or more are
//! empty.
//!
//! The agent chose the keys, and addresses that senders write are only looked up, so no sender can make
//! a run of full places long.

/// Key of an entry; its default is the key of no entry.
pub(crate) trait Key: Copy + Default + Eq {
    /// A number in which every bit depends on all of the key.
    fn hash(self) -> u64;
}

impl Key for u64 {
    #[inline(always)]
    fn hash(self) -> u64 {
        // An odd constant without a pattern: the fraction of the golden ratio.
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self).wrapping_mul(FACTOR).to_ne_bytes();
        let [a, b, c, d, e, f, g, h, rest @ ..] = product;
        u64::from_ne_bytes([a, b, c, d, e, f, g, h]) ^ u64::from_ne_bytes(rest)
    }
}

impl Key for u128 {
    #[inline(always)]
    fn hash(self) -> u64 {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.to_ne_bytes();
        (u64::from_ne_bytes([a, b, c, d, e, f, g, h]).hash() ^ u64::from_ne_bytes(rest)).hash()
    }
}

/// A table.
#[derive(Debug)]
pub(crate) struct Flat<K, V> {
    /// A power of two of them, or none.
    places: Vec<(K, V)>,
    entries: usize,
}

impl<K, V> Default for Flat<K, V> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            entries: 0,
        }
    }
}

impl<K: Key, V: Copy + Default> Flat<K, V> {
    /// Returns the entry of a key.
    #[inline(always)]
    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = start(key);
        // There is an empty place, so this ends, unless there is none at all.
        loop {
            let (found, value) = self.places.get(at & mask)?;
            if *found == K::default() {
                return None;
            }
            if *found == key {
                return Some(value);
            }
            at = at.wrapping_add(1);
        }
    }

    /// Puts something under a key, which is not that of no entry.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if key == K::default() {
            return;
        }
        if self.entries.saturating_add(1).saturating_mul(2) > self.places.len() {
            let wanted = self.places.len().saturating_mul(2).max(8);
            self.rebuild(wanted, |_| true);
        }
        self.put(key, value);
    }

    /// Keeps only these.
    pub(crate) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.rebuild(self.places.len(), keep);
    }

    fn rebuild(&mut self, places: usize, keep: impl Fn(&V) -> bool) {
        let empty = vec![(K::default(), V::default()); places];
        let old = std::mem::replace(&mut self.places, empty);
        self.entries = 0;
        for (key, value) in old {
            if key != K::default() && keep(&value) {
                self.put(key, value);
            }
        }
    }

    fn put(&mut self, key: K, value: V) {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = start(key);
        while let Some((found, place)) = self.places.get_mut(at & mask) {
            if *found == key || *found == K::default() {
                self.entries = self.entries.saturating_add(usize::from(*found != key));
                *found = key;
                *place = value;
                return;
            }
            at = at.wrapping_add(1);
        }
    }
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "any part of a hash is one as well"
)]
fn start<K: Key>(key: K) -> usize {
    key.hash() as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32),
        Without(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let insert = (0_u64..60, 0_u32..9).prop_map(|(key, value)| Step::Insert(key, value));
        let without = (0_u32..9).prop_map(Step::Without);
        proptest::collection::vec(prop_oneof![9 => insert, 1 => without], 0..200)
    }

    proptest! {
        /// Keys in a row, and those that look alike: a table like any other.
        #[test]
        fn it_has_what_was_put_there_and_nothing_else(steps in steps(), shift in 0_u32..58) {
            let mut flat: Flat<u64, u32> = Flat::default();
            let mut wide: Flat<u128, u32> = Flat::default();
            let mut model: HashMap<u64, u32> = HashMap::new();
            let place = |key: u64| key << shift;
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        flat.insert(place(key), value);
                        wide.insert(u128::from(place(key)) << 64, value);
                        if place(key) != 0 {
                            model.insert(place(key), value);
                        }
                    }
                    Step::Without(value) => {
                        flat.retain(|found| *found != value);
                        wide.retain(|found| *found != value);
                        model.retain(|_, found| *found != value);
                    }
                }
            }
            prop_assert_eq!(flat.entries, model.len());
            for key in 0..70 {
                let key = place(key);
                prop_assert_eq!(flat.get(key), model.get(&key));
                prop_assert_eq!(wide.get(u128::from(key) << 64), model.get(&key));
            }
        }
    }
}
