//! Count and damage entries of maps that an agent has pinned, behind its back.

use std::fs;

use agent_common::addr::{Ip16, MacAddr};
use aya::maps::{Array, HashMap, Map, MapData};

use crate::node::Node;

/// A hash map, whose keys have `K` bytes and values `V`.
type Pinned<const K: usize, const V: usize> = HashMap<MapData, [u8; K], [u8; V]>;

/// Removes an entry of `K` and `V` bytes from a pinned map.
///
/// # Panics
/// If there is no such map, or no such entry.
#[track_caller]
pub fn remove<const K: usize, const V: usize>(node: &Node, map: &str, key: [u8; K]) {
    let mut map: Pinned<K, V> = open(node, map);
    map.remove(&key).expect("the entry was there");
}

/// Removes all entries from a pinned map, whose keys have `K` bytes and values `V`.
///
/// # Panics
/// If there is no such map, or nothing in it.
#[track_caller]
pub fn clear<const K: usize, const V: usize>(node: &Node, map: &str) {
    let mut map: Pinned<K, V> = open(node, map);
    let keys: Vec<[u8; K]> = map.keys().map(|key| key.expect("a key")).collect();
    assert!(!keys.is_empty(), "there is nothing to remove");
    for key in keys {
        map.remove(&key).expect("the entry was there");
    }
}

/// Writes an entry of `K` and `V` bytes into a pinned map.
///
/// # Panics
/// If there is no such map, or no room.
#[track_caller]
pub fn insert<const K: usize, const V: usize>(node: &Node, map: &str, entry: ([u8; K], [u8; V])) {
    let mut map: Pinned<K, V> = open(node, map);
    map.insert(entry.0, entry.1, 0).expect("room");
}

/// Writes entries of `K` and `V` bytes until a pinned map is full.
///
/// All values are zero.
///
/// # Panics
/// If there is no such map.
#[track_caller]
pub fn fill<const K: usize, const V: usize>(
    node: &Node,
    map: &str,
    keys: impl Iterator<Item = [u8; K]>,
) {
    let mut map: Pinned<K, V> = open(node, map);
    for key in keys {
        if map.insert(key, [0; V], 0).is_err() {
            return;
        }
    }
}

/// Counts the entries of `K` and `V` bytes in a pinned map.
///
/// # Panics
/// If there is no such map.
#[track_caller]
pub fn count<const K: usize, const V: usize>(node: &Node, map: &str) -> usize {
    let map: Pinned<K, V> = open(node, map);
    map.keys().flatten().count()
}

/// Counts the entries of `FLOWS`, those that are over, too.
///
/// # Panics
/// If there is no such map.
#[track_caller]
pub fn connections(node: &Node) -> usize {
    let mut count = 0;
    each_connection(node, |state| count += usize::from(*state != 0));
    count
}

/// Changes the states of all places of `FLOWS`.
///
/// They are time, flags and tag, or 0 where there is no entry.
/// Entries that packets change meanwhile may be as they were.
///
/// # Panics
/// If there is no such map.
#[track_caller]
pub fn each_connection(node: &Node, mut change: impl FnMut(&mut u64)) {
    const STATES: usize = 8;
    let map = pinned(node, "FLOWS").try_into();
    let mut map: Array<MapData, [u64; 64]> = map.expect("an array of buckets");
    for number in 0..map.len() {
        let before = map.get(&number, 0).expect("a bucket");
        let mut bucket = before;
        bucket.iter_mut().take(STATES).for_each(&mut change);
        if bucket != before {
            map.set(number, bucket, 0).expect("a bucket");
        }
    }
}

#[track_caller]
fn open<const K: usize, const V: usize>(node: &Node, map: &str) -> Pinned<K, V> {
    pinned(node, map).try_into().expect("a hash map")
}

#[track_caller]
fn pinned(node: &Node, map: &str) -> Map {
    let entries = fs::read_dir(node.bpffs()).expect("the pin directory");
    let mut paths = entries.map(|entry| entry.expect("an entry").path().join(map));
    let path = paths.find(|path| path.exists());
    let path = path.expect("the map is pinned");
    let data = MapData::from_pin(path).expect("the map can be opened");
    Map::from_map_data(data).expect("a map of a known kind")
}

/// Key of `ENDPOINTS`, whose values have 24 bytes.
pub fn endpoint(network: u32, ip: std::net::IpAddr) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&network.to_ne_bytes());
    key[4..].copy_from_slice(&Ip16::from(ip).0);
    key
}

/// Key of `FDB`, whose values have 24 bytes.
pub fn station(network: u32, mac: MacAddr) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&network.to_ne_bytes());
    key[4..10].copy_from_slice(&mac.0);
    key
}
