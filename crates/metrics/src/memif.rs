//! Metrics of memif ports: packets that the switch carries, and that it drops.
//!
//! The kernel does not see them.

use book::bandwidth::Direction;
use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGaugeVec};
use uswitch::{PortCounters, PortDrops};

use super::{MetricsError, opts};

/// A port of the switch.
#[derive(Debug)]
pub struct MemifPort {
    /// Namespace, pod, interface.
    pub place: [String; 3],
    /// It has a client.
    pub connected: bool,
    /// Counters of the port's traffic.
    pub counters: PortCounters,
}

/// Of these ports.
pub(super) fn families(ports: &[MemifPort]) -> Result<Vec<MetricFamily>, MetricsError> {
    let place = ["namespace", "pod", "interface"];
    let with = |label| [&place[..], &[label]].concat();
    let connected = IntGaugeVec::new(opts("podnet_memif_connected"), &place)?;
    let packets = IntCounterVec::new(opts("podnet_memif_packets_total"), &with("direction"))?;
    let bytes = IntCounterVec::new(opts("podnet_memif_bytes_total"), &with("direction"))?;
    let drops = IntCounterVec::new(opts("podnet_memif_drops_total"), &with("reason"))?;
    for port in ports {
        let [namespace, pod, interface] = port.place.each_ref().map(String::as_str);
        connected
            .with_label_values(&[namespace, pod, interface])
            .set(port.connected.into());
        let to_pod = (Direction::Ingress, port.counters.fast_to);
        let from_pod = (Direction::Egress, port.counters.fast_from);
        for (direction, count) in [to_pod, from_pod] {
            let labels = [namespace, pod, interface, direction.label()];
            packets.with_label_values(&labels).inc_by(count.packets);
            bytes.with_label_values(&labels).inc_by(count.bytes);
        }
        for (reason, count) in by_reason(&port.counters.drops) {
            drops
                .with_label_values(&[namespace, pod, interface, reason])
                .inc_by(count);
        }
    }
    let connected = connected.collect().into_iter();
    let counters = [packets, bytes, drops].into_iter();
    Ok(connected
        .chain(counters.flat_map(|counter| counter.collect()))
        .collect())
}

/// Lists drops by the names that `get attachments` has for them.
///
/// A new one does not compile until it is here.
fn by_reason(drops: &PortDrops) -> [(&'static str, u64); 7] {
    let PortDrops {
        no_buffer,
        too_long,
        not_connected,
        bad_length,
        bad_descriptor,
        device_full,
        device_down,
    } = *drops;
    [
        ("no_buffer", no_buffer),
        ("too_long", too_long),
        ("not_connected", not_connected),
        ("bad_length", bad_length),
        ("bad_descriptor", bad_descriptor),
        ("device_full", device_full),
        ("device_down", device_down),
    ]
}
