//! A bit for each class of ports.

use super::classes::{Classes, MAX_CLASSES};
use crate::judge::Traffic;

const WORDS: usize = MAX_CLASSES / 64;

/// Traffic that may pass: classes of each protocol, and all that has no ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// Bits of classes, the lowest first, for each of [`crate::Protocol::ALL`].
    pub ports: [[u64; WORDS]; 3],
    /// Traffic of other protocols, as ICMP.
    pub other: bool,
}

impl Row {
    /// No traffic.
    pub const NOTHING: Self = Self {
        ports: [[0; WORDS]; 3],
        other: false,
    };

    /// All traffic.
    pub const ALL: Self = Self {
        ports: [[u64::MAX; WORDS]; 3],
        other: true,
    };

    /// Adds a class of the protocol at this index.
    pub(super) fn set(&mut self, protocol: usize, class: usize) {
        let word = self
            .ports
            .get_mut(protocol)
            .and_then(|words| words.get_mut(class / 64));
        if let Some(word) = word {
            *word |= 1 << (class % 64);
        }
    }

    /// Returns this traffic and the other's.
    #[must_use]
    pub(super) fn with(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b, self.other | other.other)
    }

    /// Returns this traffic without the other's.
    #[must_use]
    pub(super) fn without(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b, self.other & !other.other)
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64, rest: bool) -> Self {
        let mut ports = self.ports;
        for (words, others) in ports.iter_mut().zip(&other.ports) {
            for (word, other) in words.iter_mut().zip(others) {
                *word = join(*word, *other);
            }
        }
        Self { ports, other: rest }
    }

    /// Reports whether this traffic may pass.
    pub fn has(&self, classes: &Classes, traffic: Traffic) -> bool {
        match traffic {
            Traffic::Other => self.other,
            Traffic::Port(protocol, port) => {
                let class = classes.class(protocol, port);
                let words = self.ports.get(protocol.index());
                let word = words.and_then(|words| words.get(class / 64));
                word.is_some_and(|word| word & (1 << (class % 64)) != 0)
            }
        }
    }
}
