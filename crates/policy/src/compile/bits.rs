//! A set of small numbers.

/// Numbers, a bit for each.
///
/// Equal ones are equal in memory: the last word is never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Adds a number.
    pub(super) fn add(&mut self, number: u32) {
        let (word, bit) = place(number);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    /// Takes a number out.
    pub(super) fn remove(&mut self, number: u32) {
        let (word, bit) = place(number);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Reports whether a number is in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(one, two)| one & two != 0)
    }

    /// Reports whether a number is there.
    pub(super) fn has(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl FromIterator<u32> for Bits {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut bits = Self::default();
        for number in numbers {
            bits.add(number);
        }
        bits
    }
}

const fn place(number: u32) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn the_order_of_numbers_makes_no_other_set() {
        let (one, two): (Bits, Bits) = (
            [3, 64, 700].into_iter().collect(),
            [700, 3, 64, 3].into_iter().collect(),
        );
        assert_eq!(one, two);
        assert!(one.meets(&two) && !one.meets(&[4, 65, 701].into_iter().collect()));
        let mut less = two.clone();
        [700, 64, 5].into_iter().for_each(|it| less.remove(it));
        assert_eq!(less, [3].into_iter().collect());
        assert!(one.has(64) && one.has(700) && !one.has(65) && !one.has(100_000));
    }
}
