//! Tell the value of a key from one that the kernel is giving to another key.
//!
//! A program that has found a value goes on reading where it was found. When the agent replaces or removes the
//! entry meanwhile, the kernel may give the same memory to the next entry of the map that is written: at once
//! where entries are allocated beforehand, and from Linux 6.1 on in all hash maps ("bpf: Convert hash map to
//! `bpf_mem_alloc`"). What is read is half of another port then, or all of it. So a value that says what a port is
//! or where it is ends with a sum of its words and those of its key. Programs copy the words and add them up once more.

use crate::endpoint::{Endpoint, EndpointKey, FdbKey};
use crate::guard::{Guard, PaddedGuard};
use crate::network::Network;
use crate::port::Port;
use crate::service::{Backend, BackendKey, ClientKey, Kept, Service, ServiceKey};
use crate::wire::{WireKey, WireOwner};

/// Factors of the words of a value, odd ones that have nothing in common.
const OF_WORDS: [u64; 8] = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
];
/// Factors of the words of a key.
const OF_KEYS: [u64; 3] = [
    0xff51_afd7_ed55_8ccd,
    0xc4ce_b9fe_1a85_ec53,
    0xa24b_aed4_963e_e407,
];

/// A key whose values are sealed.
pub trait Key {
    /// The sum that the seal begins with.
    fn share(&self) -> u64;
}

impl Key for u32 {
    #[inline(always)]
    fn share(&self) -> u64 {
        // 0 with words of 0 is no value either.
        (*self as u64).wrapping_mul(OF_KEYS[0]).wrapping_add(1)
    }
}

impl Key for EndpointKey {
    #[inline(always)]
    fn share(&self) -> u64 {
        let [a, b, c, d] = self.ip.words();
        let (first, second) = (pair(a, b), pair(c, d));
        let sum = self.network.share();
        let sum = sum.wrapping_add(first.wrapping_mul(OF_KEYS[1]));
        sum.wrapping_add(second.wrapping_mul(OF_KEYS[2]))
    }
}

impl Key for WireKey {
    #[inline(always)]
    fn share(&self) -> u64 {
        let [a, b, c, d] = self.ip.words();
        let (first, second) = (pair(a, b), pair(c, d));
        let place = (self.vlan as u32) << 16 | self.reserved as u32;
        let sum = pair(place, self.ifindex).wrapping_mul(OF_KEYS[0]);
        let sum = sum
            .wrapping_add(1)
            .wrapping_add(first.wrapping_mul(OF_KEYS[1]));
        sum.wrapping_add(second.wrapping_mul(OF_KEYS[2]))
    }
}

impl Key for ServiceKey {
    #[inline(always)]
    fn share(&self) -> u64 {
        let [a, b, c, d] = self.ip.words();
        let (first, second) = (pair(a, b), pair(c, d));
        let port = (self.protocol as u32) << 16 | self.port as u32;
        let sum = pair(port, self.network).wrapping_mul(OF_KEYS[0]);
        let sum = sum
            .wrapping_add(1)
            .wrapping_add(first.wrapping_mul(OF_KEYS[1]));
        sum.wrapping_add(second.wrapping_mul(OF_KEYS[2]))
    }
}

impl Key for BackendKey {
    #[inline(always)]
    fn share(&self) -> u64 {
        let word = pair(self.set, self.index);
        word.wrapping_mul(OF_KEYS[0]).wrapping_add(1)
    }
}

impl Key for ClientKey {
    #[inline(always)]
    fn share(&self) -> u64 {
        let [a, b, c, d] = self.client.words();
        let sum = self.service.share();
        let sum = sum.wrapping_add(pair(a, b).wrapping_mul(OF_WORDS[6]));
        sum.wrapping_add(pair(c, d).wrapping_mul(OF_WORDS[7]))
    }
}

impl Key for FdbKey {
    #[inline(always)]
    fn share(&self) -> u64 {
        let [a, b, c, d, e, f] = self.mac.0;
        let mac = u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
        let sum = self.network.share();
        sum.wrapping_add(mac.wrapping_mul(OF_KEYS[1]))
    }
}

#[inline(always)]
const fn pair(a: u32, b: u32) -> u64 {
    (a as u64) << 32 | b as u64
}

/// Adds the word at a place, 0..8, to a sum.
///
/// A mixture has one seam, as one side reads on from where the other one writes. Of mixtures with more of them, those that
/// differ in the last bytes of two addresses alone may have the same sum.
#[inline(always)]
pub fn add(sum: u64, place: usize, word: u64) -> u64 {
    let factor = OF_WORDS.get(place).copied().unwrap_or(0);
    sum.wrapping_add(word.wrapping_mul(factor))
}

/// A value in the form that a map has.
pub trait Stored<K, V>: Sized {
    /// Stores the value of a key.
    fn store(key: &K, value: V) -> Self;
    /// Returns the value of a key; `None` if it is that of another one, or damaged.
    fn value(&self, key: &K) -> Option<V>;
}

impl<K, V: Copy> Stored<K, V> for V {
    fn store(_: &K, value: V) -> Self {
        value
    }

    fn value(&self, _: &K) -> Option<V> {
        Some(*self)
    }
}

macro_rules! sealed {
    ($value:ty, $stored:ident, $words:literal, [$($key:ty),+]) => {
        /// A stored value: its words, and its seal.
        pub type $stored = [u64; $words + 1];

        $(impl Stored<$key, $value> for $stored {
            fn store(key: &$key, value: $value) -> Self {
                let words: [u64; $words] = zerocopy::transmute!(value);
                let (mut stored, mut sum) = ([0; $words + 1], key.share());
                for (place, (to, word)) in stored.iter_mut().zip(words).enumerate() {
                    *to = word;
                    sum = add(sum, place, word);
                }
                stored[$words] = sum;
                stored
            }

            fn value(&self, key: &$key) -> Option<$value> {
                let mut words = [0; $words];
                words.copy_from_slice(&self[..$words]);
                let value: $value = zerocopy::transmute!(words);
                (Self::store(key, value) == *self).then_some(value)
            }
        })+
    };
}

sealed!(Port, SealedPort, 8, [u32]);
sealed!(Endpoint, SealedEndpoint, 2, [EndpointKey, FdbKey]);
sealed!(Network, SealedNetwork, 4, [u32]);
sealed!(PaddedGuard, SealedGuard, 3, [u32]);
sealed!(WireOwner, SealedWire, 1, [WireKey]);
sealed!(Service, SealedService, 2, [ServiceKey]);
sealed!(Backend, SealedBackend, 3, [BackendKey]);
sealed!(Kept, SealedKept, 3, [ClientKey]);

impl Stored<u32, Guard> for SealedGuard {
    fn store(key: &u32, guard: Guard) -> Self {
        Self::store(key, PaddedGuard { guard, reserved: 0 })
    }

    fn value(&self, key: &u32) -> Option<Guard> {
        let padded: Option<PaddedGuard> = self.value(key);
        padded.map(|padded| padded.guard)
    }
}

impl Stored<WireKey, u32> for SealedWire {
    fn store(key: &WireKey, network: u32) -> Self {
        Self::store(key, WireOwner::new(network))
    }

    fn value(&self, key: &WireKey) -> Option<u32> {
        let owner: Option<WireOwner> = self.value(key);
        owner.map(|owner| owner.network)
    }
}

#[cfg(test)]
mod tests;
