//! Metrics of each port: its traffic, its drops and its waits for a rate.

use book::bandwidth::Direction;
use prometheus::IntCounterVec;
use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;

use super::{MetricsError, opts};

/// Packets and bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Packets, as they would be on a wire.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The queue of a rate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Times that a packet had to wait.
    pub waits: u64,
    /// Packets that found no room.
    pub dropped: u64,
}

/// A port of any type, since it was made.
#[derive(Debug, Default)]
pub struct PortTraffic {
    /// Namespace, pod, interface, network.
    pub place: [String; 4],
    /// To the pod, but for copies of frames for all.
    pub ingress: Traffic,
    /// From the pod, but for frames for all.
    pub egress: Traffic,
    /// From the pod, and for all.
    pub flooded: Traffic,
    /// From the pod, and dropped.
    pub dropped: Traffic,
    /// Packets of these by reason.
    pub reasons: Vec<(&'static str, u64)>,
    /// Queues of rates, by direction.
    pub rates: Vec<(Direction, Rate)>,
}

const PLACE: [&str; 4] = ["namespace", "pod", "interface", "network"];

/// Of these ports.
pub(super) fn families(ports: &[PortTraffic]) -> Result<Vec<MetricFamily>, MetricsError> {
    let directed = [&PLACE[..], &["direction"]].concat();
    let counter = |name, labels: &[&str]| IntCounterVec::new(opts(name), labels);
    let packets = counter("podnet_port_packets_total", &directed)?;
    let bytes = counter("podnet_port_bytes_total", &directed)?;
    let flooded = counter("podnet_port_flooded_packets_total", &PLACE)?;
    let drops = counter("podnet_port_drops_total", &PLACE)?;
    let drop_bytes = counter("podnet_port_drop_bytes_total", &PLACE)?;
    let by_reason = [&PLACE[..], &["reason"]].concat();
    let reasons = counter("podnet_port_drop_reasons_total", &by_reason)?;
    let waits = counter("podnet_port_rate_waits_total", &directed)?;
    let rate_drops = counter("podnet_port_rate_drops_total", &directed)?;
    for port in ports {
        let [namespace, pod, interface, network] = port.place.each_ref().map(String::as_str);
        let place = [namespace, pod, interface, network];
        let with = |direction: Direction| {
            let label = direction.label();
            [namespace, pod, interface, network, label]
        };
        for (direction, traffic) in [
            (Direction::Ingress, port.ingress),
            (Direction::Egress, port.egress),
        ] {
            let labels = with(direction);
            packets.with_label_values(&labels).inc_by(traffic.packets);
            bytes.with_label_values(&labels).inc_by(traffic.bytes);
        }
        flooded
            .with_label_values(&place)
            .inc_by(port.flooded.packets);
        drops.with_label_values(&place).inc_by(port.dropped.packets);
        drop_bytes
            .with_label_values(&place)
            .inc_by(port.dropped.bytes);
        for (reason, packets) in &port.reasons {
            reasons
                .with_label_values(&[namespace, pod, interface, network, *reason])
                .inc_by(*packets);
        }
        for (direction, rate) in &port.rates {
            let labels = with(*direction);
            waits.with_label_values(&labels).inc_by(rate.waits);
            rate_drops.with_label_values(&labels).inc_by(rate.dropped);
        }
    }
    let all = [
        packets, bytes, flooded, drops, drop_bytes, reasons, waits, rate_drops,
    ];
    Ok(all
        .into_iter()
        .flat_map(|counter| counter.collect())
        .collect())
}
