//! Differences between the ports of the switch and the records. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uswitch::PortConfig;

/// Keys of ports that the switch has and no record names.
///
/// All ports of a switch are podnet's: nobody else asks it for any.
pub(super) fn strays<T>(found: &BTreeMap<String, T>, recorded: &BTreeSet<String>) -> Vec<String> {
    let strays = found.keys().filter(|key| !recorded.contains(*key));
    strays.cloned().collect()
}

/// Fault of a port at the switch, in words; none when it is as recorded.
pub(super) fn fault(wanted: &PortConfig, found: Option<&PortConfig>) -> Option<&'static str> {
    match found {
        Some(found) if found == wanted => None,
        Some(_) => Some("the switch has its port otherwise than it is recorded"),
        None => Some("the switch does not have its port"),
    }
}

#[cfg(test)]
mod tests {
    use api::{Interface, InterfaceKind, Mode};
    use book::bandwidth::{Limit, Source};
    use book::record::Attachment;
    use book::samples;
    use proptest::prelude::*;

    use super::super::config;
    use super::*;

    fn record(container: &str) -> Attachment {
        let network = samples::network("blue", Mode::L2, &[("10.10.0.0/24", "10.10.0.1")]);
        samples::record(&network, |wanted| {
            wanted.key = samples::key(container, "net1");
            wanted.interface = Interface {
                kind: InterfaceKind::Memif,
                queues: 1,
            };
        })
    }

    #[test]
    fn a_port_with_a_rate_a_shaper_or_a_queue_is_off_the_fast_path() {
        let plain = record("c1");
        assert!(config(&plain).fast);
        let mut queued = plain.clone();
        queued.queued = true;
        let mut limited = plain.clone();
        limited.limits.ingress = Some(Limit {
            rate: 8_000_000,
            burst: None,
            source: Source::Network,
        });
        for record in [queued, limited] {
            let wanted = config(&record);
            assert!(!wanted.fast);
            assert!(fault(&wanted, Some(&config(&plain))).is_some());
            assert_eq!(fault(&wanted, Some(&wanted)), None);
        }
        assert!(fault(&config(&plain), None).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Strays go and records are plugged in, as `keep` does; then nothing differs.
        #[test]
        fn after_strays_are_removed_and_records_plugged_in_nothing_differs(
            recorded in proptest::collection::btree_set("[a-d]", 0..4),
            there in proptest::collection::btree_map("[a-f]", any::<bool>(), 0..6),
        ) {
            let wanted = |key: &String| config(&record(key));
            let mut switch: BTreeMap<String, PortConfig> = there
                .iter()
                .map(|(key, is_changed)| {
                    let mut port = wanted(key);
                    port.fast ^= is_changed;
                    (port.key.clone(), port)
                })
                .collect();
            let keys: BTreeSet<String> = recorded.iter().map(|it| wanted(it).key).collect();
            let kept: BTreeMap<_, _> = switch.clone().into_iter().filter(|it| keys.contains(&it.0)).collect();
            for stray in strays(&switch, &keys) {
                prop_assert!(!keys.contains(&stray));
                switch.remove(&stray);
            }
            prop_assert_eq!(&switch, &kept, "a recorded port stays as it is");
            for port in recorded.iter().map(wanted) {
                if fault(&port, switch.get(&port.key)).is_some() {
                    switch.insert(port.key.clone(), port);
                }
            }
            prop_assert!(strays(&switch, &keys).is_empty());
            for port in recorded.iter().map(wanted) {
                prop_assert_eq!(fault(&port, switch.get(&port.key)), None);
            }
        }
    }
}
