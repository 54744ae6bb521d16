//! Every metric, once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};
use telemetry::exposition::{MetricsError, described, exposition};

mod memif;

pub use self::memif::MemifPort;

/// Buckets from half a millisecond, which is a good `STATUS`, to ten seconds.
const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0,
];

/// Name, type, labels and meaning of every metric; `docs/metrics.md` is made of it.
pub const METRICS: &[(&str, &str, &str, &str)] = &[
    (
        "podnet_cni_requests_total",
        "counter",
        "command, code",
        "CNI requests served, by CNI error code (0 is success)",
    ),
    (
        "podnet_cni_duration_seconds",
        "histogram",
        "command",
        "Time from request to reply",
    ),
    (
        "podnet_attachments",
        "gauge",
        "network",
        "Attachments this node holds",
    ),
    (
        "podnet_ipam_addresses",
        "gauge",
        "network",
        "Addresses held",
    ),
    (
        "podnet_drops_total",
        "counter",
        "network, reason",
        "Packets dropped by the datapath",
    ),
    (
        "podnet_drop_bytes_total",
        "counter",
        "network, reason",
        "Bytes dropped by the datapath",
    ),
    (
        "podnet_shaping_supported",
        "gauge",
        "",
        "1 if this kernel can limit rates; 0 if an ADD with a rate fails",
    ),
    (
        "podnet_shaped_attachments",
        "gauge",
        "network, direction",
        "Attachments with a limited rate",
    ),
    (
        "podnet_shaper_backlog_bytes",
        "gauge",
        "network, direction",
        "Bytes that wait for the rate of their attachment",
    ),
    (
        "podnet_shaper_drops_total",
        "counter",
        "network, direction",
        "Packets that found no room in the queue of a limited attachment; counted when this page is asked for",
    ),
    (
        "podnet_memif_connected",
        "gauge",
        "namespace, pod, interface",
        "1 for each memif port with a client, 0 for one without",
    ),
    (
        "podnet_memif_packets_total",
        "counter",
        "namespace, pod, interface, direction",
        "Packets that the switch carried straight between the clients of two memif ports",
    ),
    (
        "podnet_memif_bytes_total",
        "counter",
        "namespace, pod, interface, direction",
        "Their bytes",
    ),
    (
        "podnet_memif_drops_total",
        "counter",
        "namespace, pod, interface, reason",
        "Packets that the switch dropped: to a client that was not connected, or had posted no buffer or one too short; from a client with a bad length or descriptor; to a device that was full or down",
    ),
    (
        "podnet_egress_connections",
        "gauge",
        "network",
        "Connections through the network's way out on this node that are tracked",
    ),
    (
        "podnet_egress_refused_packets",
        "gauge",
        "network",
        "Packets of connections that a pod could not begin because it had too many; since the way out or its rules were made",
    ),
    (
        "podnet_ruleset_stopped_packets",
        "gauge",
        "table, rule",
        "Packets that a rule of podnet's tables in the node's nf_tables has stopped since the table was written: forged tunnels, what leaves a network for the inside of the cluster, connections above a network's limit",
    ),
    (
        "podnet_rulesets_restored_total",
        "counter",
        "table",
        "Times that a table of podnet in nf_tables was written again because another program had changed it",
    ),
    (
        "podnet_world_unread",
        "gauge",
        "",
        "Kinds of objects that were never read from the API server since the start; an ADD fails while there are any",
    ),
    (
        "podnet_api_writes_total",
        "counter",
        "object, outcome",
        "Network statuses and Events by what became of them: written, failed (tried again), gone (no such pod), dropped",
    ),
    (
        "podnet_ipam_blocks_total",
        "counter",
        "change",
        "Blocks of addresses that this node has taken from the cluster, and given_back",
    ),
    (
        "pod_network_name_info",
        "gauge",
        "namespace, pod, interface, network_name",
        "0 for each interface of a pod; add it to a metric of interfaces to learn the network, with group_left(network_name)",
    ),
    (
        "podnet_uplink_drop_mode",
        "gauge",
        "interface, mode",
        "1 for each interface that tunnels end at, by where it drops what no network of this node wants: native or generic XDP, or tc",
    ),
    (
        "podnet_flood_receivers",
        "gauge",
        "network",
        "Ports of this node and other nodes that get a copy of a frame for all",
    ),
    (
        "podnet_flood_receiver_limit",
        "gauge",
        "",
        "Receivers that one such frame can have by the limits of storm control",
    ),
    (
        "podnet_nodes_unrouted",
        "gauge",
        "",
        "Other nodes whose pods of the network that the node routes for are not reached; the log says why",
    ),
    (
        "podnet_remote_claims_refused",
        "gauge",
        "reason",
        "Addresses and members that other nodes claim and that are not taken: vtep (its tunnels end at no address of its Node), outside (of the subnets), gateway, not_held (no IPBlock or granted IPReservation of that node), no_address; podnet-agent get endpoints shows whose",
    ),
    (
        "podnet_ports_waiting_for_tcx",
        "gauge",
        "",
        "Live ports that run on a clsact filter and wait for a quiet moment to get their TCX link",
    ),
    (
        "podnet_ports_impaired",
        "gauge",
        "",
        "Live ports the last audit found damaged",
    ),
    (
        "podnet_store_failed",
        "gauge",
        "",
        "1 while no record can be written: an ADD fails and a DEL waits; /readyz and the log say why",
    ),
    (
        "podnet_store_failures_total",
        "counter",
        "",
        "Times that writing records has begun to fail",
    ),
    (
        "podnet_records_set_aside",
        "gauge",
        "",
        "Records that could not be used at a start, and whose attachments were removed; `get attachments` shows them",
    ),
];

/// The node's own metrics. Those of the datapath are read when they are asked for.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    queue_drops: IntCounterVec,
    api_writes: IntCounterVec,
    blocks: IntCounterVec,
    rulesets: IntCounterVec,
    /// Packets that each queue had dropped when it was last read.
    ///
    /// Queues come and go, and the sum must not fall.
    queues: Mutex<HashMap<u32, u64>>,
}

/// Values that are read at the moment of asking.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// (network, attachments, addresses)
    pub networks: Vec<(String, usize, usize)>,
    /// (network, reason, packets, bytes)
    pub drops: Vec<(String, &'static str, u64, u64)>,
    /// Connections through ways out: (network, tracked, refused packets).
    pub connections: Vec<(String, u64, u64)>,
    /// Packets that rules of podnet's nf_tables have stopped: (table, rule, packets).
    pub stopped: Vec<(&'static str, String, u64)>,
    /// By network and direction.
    pub shaped: BTreeMap<(String, &'static str), Shaped>,
    /// The kernel can limit rates.
    pub can_shape: bool,
    /// Kinds of objects never read.
    pub unread: usize,
    /// Interfaces of pods: namespace, pod, interface, network.
    pub interfaces: Vec<[String; 4]>,
    /// Ports of the switch.
    pub memif: Vec<MemifPort>,
    /// Interfaces that tunnels end at, and where they drop.
    pub uplinks: Vec<(String, &'static str)>,
    /// (network, receivers of a frame for all)
    pub receivers: Vec<(String, usize)>,
    /// Receivers that such a frame can have.
    pub receivers_max: u64,
    /// Nodes without a route to their pods.
    pub unrouted: usize,
    /// Claims of other nodes that are not taken, by the reason.
    pub untaken: BTreeMap<&'static str, usize>,
    /// Ports without their TCX link.
    pub waiting: usize,
    /// Damaged ports.
    pub impaired: usize,
    /// No record can be written.
    pub store_failed: bool,
    /// How often that began.
    pub store_failures: u64,
    /// Records that cannot be used.
    pub set_aside: usize,
}

/// Limited attachments of one network, in one direction.
#[derive(Debug, Default, Clone, Copy)]
pub struct Shaped {
    /// How many.
    pub attachments: usize,
    /// Bytes that wait.
    pub backlog: u64,
}

impl Metrics {
    /// Sets them up.
    ///
    /// # Errors
    /// Never with the names in this file.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let requests = IntCounterVec::new(opts("podnet_cni_requests_total"), &["command", "code"])?;
        let buckets =
            HistogramOpts::from(opts("podnet_cni_duration_seconds")).buckets(SECONDS.to_vec());
        let durations = HistogramVec::new(buckets, &["command"])?;
        registry.register(Box::new(requests.clone()))?;
        let labels = &["network", "direction"];
        let queue_drops = IntCounterVec::new(opts("podnet_shaper_drops_total"), labels)?;
        registry.register(Box::new(durations.clone()))?;
        registry.register(Box::new(queue_drops.clone()))?;
        let labels = &["object", "outcome"];
        let api_writes = IntCounterVec::new(opts("podnet_api_writes_total"), labels)?;
        registry.register(Box::new(api_writes.clone()))?;
        let blocks = IntCounterVec::new(opts("podnet_ipam_blocks_total"), &["change"])?;
        registry.register(Box::new(blocks.clone()))?;
        let rulesets = IntCounterVec::new(opts("podnet_rulesets_restored_total"), &["table"])?;
        registry.register(Box::new(rulesets.clone()))?;
        Ok(Self {
            registry,
            requests,
            durations,
            queue_drops,
            api_writes,
            blocks,
            rulesets,
            queues: Mutex::default(),
        })
    }

    /// Counts something written to the API server, or not.
    pub fn api_write(&self, object: &str, outcome: &str) {
        self.api_writes.with_label_values(&[object, outcome]).inc();
    }

    /// Counts a block that was taken, or given back.
    pub fn block(&self, change: &str) {
        self.blocks.with_label_values(&[change]).inc();
    }

    /// Counts a table that another program had changed.
    pub fn ruleset_restored(&self, table: &str) {
        self.rulesets.with_label_values(&[table]).inc();
    }

    /// Counts the packets that an interface's queue dropped since the last reading.
    ///
    /// `dropped` is the number of its whole life.
    pub fn queue_drops(&self, network: &str, direction: &str, ifindex: u32, dropped: u64) {
        let before = self.lock_queues().insert(ifindex, dropped).unwrap_or(0);
        // One that was made anew has begun at zero.
        let more = dropped.checked_sub(before).unwrap_or(dropped);
        self.queue_drops
            .with_label_values(&[network, direction])
            .inc_by(more);
    }

    /// The queue of this interface is gone.
    pub fn queue_is_gone(&self, ifindex: u32) {
        self.lock_queues().remove(&ifindex);
    }

    fn lock_queues(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request.
    pub fn request(&self, command: &str, code: u32, elapsed: Duration) {
        self.requests
            .with_label_values(&[command, &code.to_string()])
            .inc();
        let duration: Histogram = self.durations.with_label_values(&[command]);
        duration.observe(elapsed.as_secs_f64());
    }

    /// The exposition, in Prometheus text format 0.0.4.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn render(&self, snapshot: &Snapshot) -> Result<String, MetricsError> {
        let attachments = IntGaugeVec::new(opts("podnet_attachments"), &["network"])?;
        let addresses = IntGaugeVec::new(opts("podnet_ipam_addresses"), &["network"])?;
        for (network, held, ips) in &snapshot.networks {
            attachments.with_label_values(&[network]).set(number(*held));
            addresses.with_label_values(&[network]).set(number(*ips));
        }
        let drops = IntCounterVec::new(opts("podnet_drops_total"), &["network", "reason"])?;
        let bytes = IntCounterVec::new(opts("podnet_drop_bytes_total"), &["network", "reason"])?;
        for (network, reason, packets, octets) in &snapshot.drops {
            drops
                .with_label_values(&[network.as_str(), *reason])
                .inc_by(*packets);
            bytes
                .with_label_values(&[network.as_str(), *reason])
                .inc_by(*octets);
        }
        let connections = IntGaugeVec::new(opts("podnet_egress_connections"), &["network"])?;
        let refused = IntGaugeVec::new(opts("podnet_egress_refused_packets"), &["network"])?;
        let large = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        for (network, tracked, packets) in &snapshot.connections {
            let labels = &[network.as_str()];
            connections.with_label_values(labels).set(large(*tracked));
            refused.with_label_values(labels).set(large(*packets));
        }
        let labels = &["table", "rule"];
        let stopped = IntGaugeVec::new(opts("podnet_ruleset_stopped_packets"), labels)?;
        for (table, rule, packets) in &snapshot.stopped {
            // Rules of two chains may say the same.
            stopped
                .with_label_values(&[*table, rule.as_str()])
                .add(large(*packets));
        }
        let labels = &["network", "direction"];
        let shaped = IntGaugeVec::new(opts("podnet_shaped_attachments"), labels)?;
        let backlog = IntGaugeVec::new(opts("podnet_shaper_backlog_bytes"), labels)?;
        for ((network, direction), of_network) in &snapshot.shaped {
            let labels = &[network.as_str(), *direction];
            let bytes = i64::try_from(of_network.backlog).unwrap_or(i64::MAX);
            shaped
                .with_label_values(labels)
                .set(number(of_network.attachments));
            backlog.with_label_values(labels).set(bytes);
        }
        let can_shape = IntGauge::with_opts(opts("podnet_shaping_supported"))?;
        can_shape.set(i64::from(snapshot.can_shape));
        let unread = IntGauge::with_opts(opts("podnet_world_unread"))?;
        unread.set(number(snapshot.unread));
        let labels = &["namespace", "pod", "interface", "network_name"];
        let interfaces = IntGaugeVec::new(opts("pod_network_name_info"), labels)?;
        for [namespace, pod, interface, network] in &snapshot.interfaces {
            interfaces
                .with_label_values(&[namespace, pod, interface, network])
                .set(0);
        }
        let uplinks = IntGaugeVec::new(opts("podnet_uplink_drop_mode"), &["interface", "mode"])?;
        for (interface, mode) in &snapshot.uplinks {
            uplinks
                .with_label_values(&[interface.as_str(), *mode])
                .set(1);
        }
        let receivers = IntGaugeVec::new(opts("podnet_flood_receivers"), &["network"])?;
        for (network, count) in &snapshot.receivers {
            receivers.with_label_values(&[network]).set(number(*count));
        }
        let receivers_max = IntGauge::with_opts(opts("podnet_flood_receiver_limit"))?;
        receivers_max.set(i64::try_from(snapshot.receivers_max).unwrap_or(i64::MAX));
        let unrouted = IntGauge::with_opts(opts("podnet_nodes_unrouted"))?;
        unrouted.set(number(snapshot.unrouted));
        let untaken = IntGaugeVec::new(opts("podnet_remote_claims_refused"), &["reason"])?;
        for (reason, count) in &snapshot.untaken {
            untaken.with_label_values(&[*reason]).set(number(*count));
        }
        let waiting = IntGauge::with_opts(opts("podnet_ports_waiting_for_tcx"))?;
        waiting.set(number(snapshot.waiting));
        let impaired = IntGauge::with_opts(opts("podnet_ports_impaired"))?;
        impaired.set(number(snapshot.impaired));
        let failed = IntGauge::with_opts(opts("podnet_store_failed"))?;
        failed.set(i64::from(snapshot.store_failed));
        let failures = IntCounter::with_opts(opts("podnet_store_failures_total"))?;
        failures.inc_by(snapshot.store_failures);
        let set_aside = IntGauge::with_opts(opts("podnet_records_set_aside"))?;
        set_aside.set(number(snapshot.set_aside));

        let mut families = self.registry.gather();
        families.extend(memif::families(&snapshot.memif)?);
        let others: [&dyn Collector; 22] = [
            &set_aside,
            &failed,
            &failures,
            &connections,
            &refused,
            &stopped,
            &receivers,
            &receivers_max,
            &uplinks,
            &unread,
            &interfaces,
            &can_shape,
            &shaped,
            &backlog,
            &attachments,
            &addresses,
            &drops,
            &bytes,
            &unrouted,
            &untaken,
            &waiting,
            &impaired,
        ];
        for collector in others {
            families.extend(
                collector
                    .collect()
                    .into_iter()
                    .filter(|family| !family.get_metric().is_empty()),
            );
        }
        exposition(&families)
    }
}

fn opts(name: &str) -> Opts {
    described(METRICS, name)
}

fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl fmt::Display for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("podnet metrics")
    }
}

#[cfg(test)]
mod tests;
