//! Which nodes may take no further block of a network for some time.
//!
//! A node that takes anew at once what was taken back leaves nothing to others. So one that has taken
//! too much is barred: the ConfigMap [`NAME`] says so, and a policy of admission goes by it
//! (`deploy/base/agent-policy.yaml`). Each time it is longer, and it always ends: pods that come to the
//! node later may need addresses.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The ConfigMap: names of networks, with spaces between them, by name of the node.
pub const NAME: &str = "podnet-barred";

/// Length of a node's first bar.
///
/// Each further one is twice as long, up to [`LONGEST`].
const FIRST: SignedDuration = SignedDuration::from_secs(60);
const LONGEST: SignedDuration = SignedDuration::from_secs(600);
/// Most pairs of a node and a network that are barred.
///
/// With the longest names they fill half of a ConfigMap.
const MAX: usize = 1000;

/// Bar of a node from blocks of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bar {
    until: Timestamp,
    length: SignedDuration,
}

/// All of them, by node and network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bars {
    all: BTreeMap<(String, String), Bar>,
    written: Option<BTreeMap<String, String>>,
}

impl Bars {
    /// Bars a node from a network, from now on; when it is already, nothing changes.
    pub fn add(&mut self, node: &str, network: &str, now: Timestamp) {
        let key = (node.to_owned(), network.to_owned());
        let length = match self.all.get(&key) {
            Some(bar) if bar.until > now => return,
            Some(bar) => LONGEST.min(bar.length.saturating_mul(2)),
            None if self.all.len() >= MAX => return,
            None => FIRST,
        };
        let until = now.saturating_add(length).unwrap_or(now);
        self.all.insert(key, Bar { until, length });
    }

    /// When the next one ends.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.all.values().map(|bar| bar.until);
        ends.filter(|end| *end > now).min()
    }

    /// Data of the ConfigMap when it differs from the last written; else `None`.
    ///
    /// A predecessor may have written any data, so the first call always returns some.
    pub fn unwritten(&mut self, now: Timestamp) -> Option<BTreeMap<String, String>> {
        // One that behaved for as long as it was barred is forgiven.
        let forgotten = |bar: &Bar| bar.until.saturating_add(bar.length).unwrap_or(now) <= now;
        self.all.retain(|_, bar| !forgotten(bar));
        let mut data: BTreeMap<String, String> = BTreeMap::new();
        for ((node, network), bar) in &self.all {
            if bar.until > now {
                let networks = data.entry(node.clone()).or_default();
                if !networks.is_empty() {
                    networks.push(' ');
                }
                networks.push_str(network);
            }
        }
        if self.written.as_ref() == Some(&data) {
            return None;
        }
        self.written = Some(data.clone());
        Some(data)
    }

    /// It was not written.
    pub fn forget_written(&mut self) {
        self.written = None;
    }
}

/// The ConfigMap with this in it.
pub fn object(namespace: &str, data: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overview::samples::at;

    fn said(bars: &mut Bars, now: i64) -> Option<Vec<(String, String)>> {
        Some(bars.unwritten(at(now))?.into_iter().collect())
    }

    fn one(node: &str, networks: &str) -> Option<Vec<(String, String)>> {
        Some(vec![(node.to_owned(), networks.to_owned())])
    }

    /// ATT-06e
    #[test]
    fn a_node_is_barred_for_longer_each_time_and_forgiven_in_the_end() {
        let mut bars = Bars::default();
        assert_eq!(said(&mut bars, 0), Some(Vec::new()));
        assert_eq!(said(&mut bars, 1), None);
        bars.add("n1", "blue", at(10));
        assert_eq!(said(&mut bars, 10), one("n1", "blue"));
        bars.add("n1", "blue", at(20));
        bars.add("n1", "red", at(20));
        assert_eq!(said(&mut bars, 20), one("n1", "blue red"));
        assert_eq!(bars.next(at(20)), Some(at(70)));
        assert_eq!(said(&mut bars, 70), one("n1", "red"));
        // Again, before as long a time has passed.
        bars.add("n1", "blue", at(100));
        assert_eq!(said(&mut bars, 100), one("n1", "blue"));
        assert_eq!(bars.next(at(100)), Some(at(220)));
        assert_eq!(said(&mut bars, 220), Some(Vec::new()));
        assert_eq!(said(&mut bars, 340), None);
        bars.add("n1", "blue", at(340));
        assert_eq!(bars.next(at(340)), Some(at(400)));
        proof::of!("ATT-06e");
    }

    /// ATT-06e
    #[test]
    fn what_a_configmap_cannot_have_is_not_said() {
        let mut bars = Bars::default();
        let network = "n".repeat(213);
        for index in 0..2000 {
            let node = format!("{index}{}", "a".repeat(249));
            bars.add(&node, &network, at(0));
        }
        let data = bars.unwritten(at(0)).expect("something new");
        assert!(object("podnet-system", &data).to_string().len() < 1 << 20);
        assert_eq!(data.len(), MAX);
        proof::of!("ATT-06e");
    }
}
