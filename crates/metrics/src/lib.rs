//! Every metric, once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};
use telemetry::exposition::{MetricsError, described, exposition};

mod flow_log;
mod list;
mod memif;
mod policies;
mod port;

pub use self::flow_log::FlowLogNumbers;
pub use self::list::METRICS;
pub use self::memif::MemifPort;
pub use self::policies::PolicyNumbers;
pub use self::port::{PortTraffic, Rate, Traffic};

/// Buckets from half a millisecond, which is a good `STATUS`, to ten seconds.
const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0,
];

/// The node's own metrics. Those of the datapath are read when they are asked for.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    phases: HistogramVec,
    queue_drops: IntCounterVec,
    api_writes: IntCounterVec,
    blocks: IntCounterVec,
    rulesets: IntCounterVec,
    policies_applied: Histogram,
    services_applied: Histogram,
    flows: IntGaugeVec,
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
    /// (network, IP family, addresses)
    pub free: Vec<(String, &'static str, u128)>,
    /// Ports of all types; empty where they are not wanted.
    pub ports: Vec<PortTraffic>,
    /// Maps of the datapath: (name, entries, limit).
    pub maps: Vec<(&'static str, usize, u32)>,
    /// Ports of the switch.
    pub memif: Vec<MemifPort>,
    /// Numbers of network policies; none while they are not known.
    pub policies: Option<PolicyNumbers>,
    /// Numbers of the flow log; none without one.
    pub flow_log: Option<FlowLogNumbers>,
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
    /// Spans that were exported, and those that were dropped.
    pub spans: [u64; 2],
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
        let buckets =
            HistogramOpts::from(opts("podnet_add_phase_seconds")).buckets(SECONDS.to_vec());
        let phases = HistogramVec::new(buckets, &["phase"])?;
        registry.register(Box::new(phases.clone()))?;
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
        let buckets =
            HistogramOpts::from(opts("podnet_policy_apply_seconds")).buckets(SECONDS.to_vec());
        let policies_applied = Histogram::with_opts(buckets)?;
        registry.register(Box::new(policies_applied.clone()))?;
        let buckets =
            HistogramOpts::from(opts("podnet_service_apply_seconds")).buckets(SECONDS.to_vec());
        let services_applied = Histogram::with_opts(buckets)?;
        registry.register(Box::new(services_applied.clone()))?;
        let flows = IntGaugeVec::new(opts("podnet_flows"), &["network"])?;
        registry.register(Box::new(flows.clone()))?;
        Ok(Self {
            registry,
            requests,
            durations,
            phases,
            queue_drops,
            api_writes,
            blocks,
            rulesets,
            policies_applied,
            services_applied,
            flows,
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

    /// Notes how long a change of policies took until it was in force.
    pub fn policies_applied(&self, took: Duration) {
        self.policies_applied.observe(took.as_secs_f64());
    }

    /// Notes how long a change of Services took until it was in force.
    pub fn services_applied(&self, took: Duration) {
        self.services_applied.observe(took.as_secs_f64());
    }

    /// Takes the connections of each network, as they were counted.
    pub fn flows(&self, by_network: &[(String, usize)]) {
        self.flows.reset();
        for (network, count) in by_network {
            self.flows.with_label_values(&[network]).set(number(*count));
        }
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

    /// Counts a phase of an `ADD`.
    pub fn phase(&self, phase: &'static str, elapsed: Duration) {
        let duration: Histogram = self.phases.with_label_values(&[phase]);
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
        let free = GaugeVec::new(opts("podnet_ipam_free_addresses"), &["network", "family"])?;
        for (network, family, count) in &snapshot.free {
            // A gauge of Prometheus is a floating-point number.
            let count: f64 = count.to_string().parse().unwrap_or(f64::INFINITY);
            free.with_label_values(&[network.as_str(), *family])
                .set(count);
        }
        let entries = IntGaugeVec::new(opts("podnet_map_entries"), &["map"])?;
        let limits = IntGaugeVec::new(opts("podnet_map_entry_limit"), &["map"])?;
        for (map, count, limit) in &snapshot.maps {
            entries.with_label_values(&[*map]).set(number(*count));
            limits.with_label_values(&[*map]).set(i64::from(*limit));
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
        let spans = IntCounterVec::new(opts("podnet_spans_total"), &["outcome"])?;
        for (outcome, count) in ["exported", "dropped"].into_iter().zip(snapshot.spans) {
            if count > 0 {
                spans.with_label_values(&[outcome]).inc_by(count);
            }
        }
        let set_aside = IntGauge::with_opts(opts("podnet_records_set_aside"))?;
        set_aside.set(number(snapshot.set_aside));

        let mut families = self.registry.gather();
        families.extend(memif::families(&snapshot.memif)?);
        families.extend(port::families(&snapshot.ports)?);
        families.extend(flow_log::families(snapshot.flow_log.as_ref())?);
        families.extend(policies::families(snapshot.policies.as_ref())?);
        let others: [&dyn Collector; 26] = [
            &free,
            &entries,
            &limits,
            &set_aside,
            &failed,
            &failures,
            &spans,
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
        families.extend(others.iter().flat_map(|collector| collector.collect()));
        // A family without a series cannot be encoded, and would take the page with it.
        families.retain(|family| !family.get_metric().is_empty());
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
