//! Numbers of what is equal, kept from one compilation to the next.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Numbers of things that are in use, the lowest first.
///
/// A number is free again when a compilation ended that did not use its thing, and so never means two things in two
/// compilations of which one follows the other.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    known: HashMap<T, u32>,
    things: Vec<Option<T>>,
    used: Vec<bool>,
    free: BTreeSet<u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            things: Vec::new(),
            used: Vec::new(),
            free: BTreeSet::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    /// Returns the number of a thing, which is in use now.
    pub(super) fn number(&mut self, thing: T) -> u32 {
        if let Some(number) = self.known.get(&thing) {
            let number = *number;
            self.touch(number);
            return number;
        }
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.things.push(None);
            self.used.push(false);
            u32::try_from(self.things.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(place) = self.things.get_mut(number as usize) {
            *place = Some(thing.clone());
        }
        self.known.insert(thing, number);
        self.touch(number);
        number
    }

    /// Notes that a number is in use.
    pub(super) fn touch(&mut self, number: u32) {
        if let Some(used) = self.used.get_mut(number as usize) {
            *used = true;
        }
    }

    /// Reports whether a number is in use.
    pub(super) fn is_used(&self, number: u32) -> bool {
        self.used.get(number as usize).copied().unwrap_or(false)
    }

    /// Returns the thing of a number.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.things.get(number as usize)?.as_ref()
    }

    /// Returns the numbers in use, ascending.
    pub(super) fn all_used(&self) -> impl Iterator<Item = u32> {
        let numbered = (0..).zip(&self.used);
        numbered
            .filter(|(_, used)| **used)
            .map(|(number, _)| number)
    }

    /// Returns the things by number; free numbers have none.
    pub(super) fn things(&self) -> &[Option<T>] {
        &self.things
    }

    /// Frees the numbers that are not in use; then none is until it is asked for.
    pub(super) fn sweep(&mut self) {
        let used = std::mem::take(&mut self.used);
        let is_used = |number: u32| used.get(number as usize).copied().unwrap_or(false);
        self.known.retain(|_, number| is_used(*number));
        self.known.shrink_to(2 * self.known.len());
        for (number, thing) in (0..).zip(&mut self.things) {
            if !is_used(number) && thing.take().is_some() {
                self.free.insert(number);
            }
        }
        while self.things.last().is_some_and(Option::is_none) {
            self.things.pop();
        }
        let end = u32::try_from(self.things.len()).unwrap_or(u32::MAX);
        self.free.split_off(&end);
        self.used = vec![false; self.things.len()];
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn what_is_in_use_keeps_its_number_and_the_rest_is_forgotten() {
        let mut numbers = Numbers::default();
        assert_eq!(["a", "b", "c"].map(|it| numbers.number(it)), [0, 1, 2]);
        numbers.sweep();
        assert_eq!(["c", "d"].map(|it| numbers.number(it)), [2, 3]);
        numbers.sweep();
        // `a` and `b` were not in use: their numbers are given again, the lowest first.
        assert_eq!(["d", "e"].map(|it| numbers.number(it)), [3, 0]);
        assert_eq!(numbers.all_used().collect::<Vec<_>>(), [0, 3]);
        numbers.sweep();
        numbers.touch(0);
        numbers.sweep();
        assert_eq!(numbers.things(), [Some("e")]);
        assert_eq!(["f", "g"].map(|it| numbers.number(it)), [1, 2]);
    }
}
