//! The layout of everything that outlives an agent: maps, keys, values, numbers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use agent_common::ABI_VERSION;
use agent_common::addr::{Ip16, MacAddr};
use agent_common::counter::{Count, NetworkDropKey, PortCounters};
use agent_common::drop::DropReason;
use agent_common::endpoint::{self, Endpoint, EndpointKey, FdbKey};
use agent_common::event::{DropEvent, EVENT_HEAD};
use agent_common::flood::{FLOOD_CHUNK, FLOOD_CHUNKS, FLOOD_CLOSED, FloodKey, FloodPorts};
use agent_common::guard::{
    self, AtomKey, Classes, FlowBucket, FlowEntry, FlowKey, FlowPlace, FlowWords, Fragment,
    FragmentKey, Guard, Row, RowKey, Secret, SetKey, Slot, Stamp,
};
use agent_common::map;
use agent_common::network::{self, Network};
use agent_common::port::{self, Port, PortAddressKey};
use agent_common::route::{Route, RouteKey};
use agent_common::seal::{
    SealedBackend, SealedEndpoint, SealedGuard, SealedKept, SealedNetwork, SealedPort,
    SealedService, SealedWire, Stored as _,
};
use agent_common::service::{
    Backend, BackendKey, ClientKey, Kept, MemberKey, Service, ServiceKey, Target, Translation,
    TranslationBucket,
};
use agent_common::storm::{StormBucket, StormLimits};
use agent_common::uplink::{self, Uplink};
use agent_common::vtep::{FloodVteps, VTEP_CHUNK, VTEP_CHUNKS, Vtep};
use agent_common::wire::{NextHop, WireKey, WireOwner};

/// Writes one line for each type, and one for each of its fields.
///
/// A field that is left out does not compile.
macro_rules! layout {
    ($out:ident, $($name:ident { $($field:ident),+ })+) => {
        $(
            writeln!($out, "type {} size {} align {}", stringify!($name), size_of::<$name>(), align_of::<$name>())?;
            let whole = |value: &$name| {
                let $name { $($field),+ } = value;
                [$((stringify!($field), std::ptr::from_ref($field).addr(), size_of_val($field))),+]
            };
            let value = <$name as zerocopy::FromZeros>::new_zeroed();
            let start = std::ptr::from_ref(&value).addr();
            for (field, address, size) in whole(&value) {
                writeln!($out, "  {field} at {} size {size}", address - start)?;
            }
        )+
    };
}

/// Writes name, kind, sizes of key and value, and number of entries of each map.
macro_rules! maps {
    ($out:ident, $($name:ident $kind:literal [$key:ty => $value:ty; $entries:expr])+) => {
        $(
            writeln!(
                $out,
                "map {} {} key {} value {} entries {}",
                stringify!($name), $kind, size_of::<$key>(), size_of::<$value>(), $entries
            )?;
        )+
    };
}

fn layout() -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "abi {ABI_VERSION}")?;
    maps! { out,
        ROOT "prog_array" [u32 => u32; map::ROOT_SLOTS]
        ROOT_XDP "prog_array" [u32 => u32; map::ROOT_XDP_SLOTS]
        ROOT_MISSES "percpu_array" [u32 => u64; 1]
        JUMP "prog_array" [u32 => u32; map::JUMP_SLOTS]
        PORTS "hash" [u32 => SealedPort; map::MAX_PORTS]
        PORT_ADDRESSES "hash" [PortAddressKey => u32; map::MAX_PORT_ADDRESSES]
        FDB "hash" [FdbKey => SealedEndpoint; map::MAX_FDB]
        ENDPOINTS "hash" [EndpointKey => SealedEndpoint; map::MAX_ENDPOINTS]
        FLOOD "hash" [FloodKey => FloodPorts; map::MAX_FLOOD]
        NETWORKS "hash" [u32 => SealedNetwork; map::MAX_NETWORKS]
        VTEPS "array" [u32 => Vtep; map::MAX_VTEPS]
        UPLINKS "hash" [u32 => Uplink; map::MAX_UPLINKS]
        OUTLETS "hash" [u32 => u32; map::MAX_OUTLETS]
        VTEP_SOURCES "hash" [Ip16 => u32; map::MAX_VTEPS]
        FLOOD_VTEPS "hash" [FloodKey => FloodVteps; map::MAX_FLOOD_VTEPS]
        WIRES "hash" [WireKey => SealedWire; map::MAX_WIRES]
        NEXT_HOPS "hash" [EndpointKey => NextHop; map::MAX_NEXT_HOPS]
        ROUTES "lpm_trie" [RouteKey => Route; map::MAX_ROUTES]
        STORM "array" [u32 => StormBucket; map::MAX_PORTS]
        STORM_NETWORKS "lru_hash" [u32 => StormBucket; map::MAX_NETWORKS]
        STORM_NODE "array" [u32 => StormBucket; 1]
        STORM_LIMITS "array" [u32 => StormLimits; 1]
        PORT_COUNTERS "percpu_array" [u32 => PortCounters; map::MAX_PORTS]
        PORT_REASONS "percpu_hash" [u32 => u64; map::MAX_PORT_REASONS]
        DROPS "percpu_array" [u32 => Count; map::MAX_DROP_REASONS]
        NETWORK_DROPS "percpu_hash" [NetworkDropKey => Count; map::MAX_NETWORK_DROPS]
        EVENT_TIMES "percpu_array" [u32 => u64; map::MAX_DROP_REASONS]
        GUARDS "hash" [u32 => SealedGuard; map::MAX_GUARDS]
        ATOMS "hash" [AtomKey => u32; map::MAX_ATOMS]
        BLOCKS "lpm_trie" [(u32, AtomKey) => u32; map::MAX_BLOCKS]
        CLASSES "hash" [u32 => Classes; map::MAX_GENERATIONS]
        SETS "hash" [SetKey => u32; map::MAX_SET_ROWS]
        ROWS "hash" [RowKey => Row; map::MAX_ROWS]
        FLOWS "array" [u32 => FlowBucket; map::FLOW_BUCKETS]
        FLOW_SECRET "array" [u32 => [[u64; 8]; 2]; 1]
        FRAGMENTS "lru_hash" [FragmentKey => Fragment; map::MAX_FRAGMENTS]
        FLOW_BUDGETS "array" [u32 => u64; guard::BUDGETS]
        STAMPS "array" [u32 => Stamp; map::MAX_PORTS]
        SWITCH_FLOWS "array" [u32 => Slot; map::MAX_SWITCH_FLOWS]
        SWITCH_STAMPS "array" [u32 => Stamp; map::MAX_PORTS]
        SERVICES "hash" [ServiceKey => SealedService; map::MAX_SERVICES]
        BACKENDS "hash" [BackendKey => SealedBackend; map::MAX_BACKENDS]
        MEMBERS "hash" [MemberKey => u32; map::MAX_BACKENDS]
        AFFINITIES "lru_hash" [ClientKey => SealedKept; map::MAX_AFFINITIES]
        TRANSLATIONS "array" [u32 => TranslationBucket; map::FLOW_BUCKETS]
        SERVICE_SECRET "array" [u32 => [[u64; 8]; 2]; 1]
        SERVICE_BUDGETS "array" [u32 => u64; guard::BUDGETS / 2]
        EVENTS "ringbuf" [() => (); map::EVENTS_BYTES]
    }
    layout! { out,
        Port {
            network, flags, mac, mtu, ip4, port_id, tunnel_port, ip6, link_local, home, shaper
        }
        PortAddressKey { ifindex, ip }
        FdbKey { network, mac, reserved }
        EndpointKey { network, ip }
        Endpoint { ifindex, flags, mac, port_id }
        FloodKey { network, chunk }
        FloodPorts { count, total, network, ifindexes, network_again }
        Network { flags, mtu, uplink, vlan, reserved, subnets }
        WireKey { ifindex, vlan, reserved, ip }
        WireOwner { network, reserved }
        NextHop { family, address }
        RouteKey { length, network, ip }
        Route { network, mtu }
        Vtep { remote, device, flags, uplink, room, next_hop, sum, mtu, head }
        Uplink { flags, port, reserved, v4, v6, mac, reserved_too }
        FloodVteps { count, total, vteps }
        StormBucket { paid_until_ns, share_until_ns }
        StormLimits { port_ns, network_ns, node_ns, networks }
        Count { packets, bytes }
        PortCounters { from_pod, to_pod, dropped, flooded }
        NetworkDropKey { network, reason }
        Guard { generation, egress, ingress, stamp, flags }
        AtomKey { generation, ip }
        Classes { counts, starts }
        SetKey { generation, set, atom }
        RowKey { generation, row }
        Row { words }
        FlowKey { network, low, high, low_port, high_port, protocol, reserved }
        FlowWords { seen, flags, egress, ingress }
        FlowEntry { key, reserved, stamps }
        FlowBucket { states, entries }
        FragmentKey { network, source, destination, id, protocol, reserved }
        Fragment { seen, source_port, destination_port, icmp, reserved }
        Slot { key, flow, tag }
        Stamp { word, complement }
        ServiceKey { network, ip, port, protocol, reserved }
        Service { set, count, affinity_s, flags }
        BackendKey { set, index }
        Backend { ip, port, reserved }
        MemberKey { network, service, backend, service_port, backend_port, protocol, reserved }
        ClientKey { service, client }
        Kept { ip, seen, port, reserved }
        Target { ip, port, kind, reserved }
        Translation { key, reserved, target, seal }
        TranslationBucket { states, entries }
        DropEvent {
            time_ns, ifindex, network, reason, length, head_length, reserved, head
        }
    }
    // Of values without a zero, so that each factor counts.
    let ip = Ip16(std::array::from_fn(|at| {
        0x11 + u8::try_from(at).unwrap_or(0)
    }));
    let mac = MacAddr([2, 3, 4, 5, 6, 7]);
    let bytes: [u8; 64] = std::array::from_fn(|at| u8::try_from(at + 1).unwrap_or(0));
    let port: Port = zerocopy::transmute!(bytes);
    let (endpoint, network): (Endpoint, Network) = {
        let (mut few, mut some) = ([0; 16], [0; 32]);
        few.copy_from_slice(&bytes[..16]);
        some.copy_from_slice(&bytes[..32]);
        (zerocopy::transmute!(few), zerocopy::transmute!(some))
    };
    let [.., port] = SealedPort::store(&7, port);
    let [.., by_ip] = SealedEndpoint::store(&EndpointKey { network: 7, ip }, endpoint);
    let [.., by_mac] = SealedEndpoint::store(&FdbKey::new(7, mac), endpoint);
    let [.., network] = SealedNetwork::store(&7, network);
    let guard = Guard {
        generation: 1,
        egress: 2,
        ingress: 3,
        stamp: 4,
        flags: 5,
    };
    let [.., guard] = SealedGuard::store(&7, guard);
    let wire = WireKey {
        ifindex: 7,
        vlan: 8,
        reserved: 9,
        ip,
    };
    let [.., wire] = SealedWire::store(&wire, 7);
    writeln!(
        out,
        "seals {port:016x} {by_ip:016x} {by_mac:016x} {network:016x} {guard:016x} {wire:016x}"
    )?;
    let key: FlowKey = {
        let mut some = [0; 44];
        some.copy_from_slice(&bytes[..44]);
        zerocopy::transmute!(some)
    };
    let secret: [[u64; 8]; 2] = std::array::from_fn(|half| {
        std::array::from_fn(|at| 0x9e37_79b9_7f4a_7c15 ^ (half * 8 + at) as u64)
    });
    let [low, high] = &secret;
    let place = FlowPlace::of(&Secret { low, high }, &key);
    let words = FlowWords {
        seen: 1,
        flags: 2,
        egress: 3,
        ingress: 4,
    };
    writeln!(
        out,
        "flow bucket {} state {:016x} stamps {:016x}",
        place.bucket(),
        place.state(&words),
        place.stamps(&words)
    )?;
    let service = ServiceKey {
        network: 7,
        ip,
        port: 8,
        protocol: 9,
        reserved: 0,
    };
    let client = ClientKey {
        service,
        client: Ip16::from_v4([1, 2, 3, 4]),
    };
    let target = Target {
        ip,
        port: 8,
        kind: 2,
        reserved: 0,
    };
    let kept = Kept {
        ip,
        seen: 3,
        port: 8,
        reserved: 0,
    };
    let found = Service {
        set: 1,
        count: 2,
        affinity_s: 3,
        flags: 4,
    };
    let [.., found] = SealedService::store(&service, found);
    let [.., backend] = SealedBackend::store(&BackendKey { set: 1, index: 2 }, Backend::new(ip, 8));
    let [.., kept] = SealedKept::store(&client, kept);
    let target = Translation::seal(place, &target);
    writeln!(
        out,
        "seals of services {found:016x} {backend:016x} {kept:016x} {target:016x}"
    )?;
    for (name, size, align) in [
        ("MacAddr", size_of::<MacAddr>(), align_of::<MacAddr>()),
        ("Ip16", size_of::<Ip16>(), align_of::<Ip16>()),
    ] {
        writeln!(out, "type {name} size {size} align {align}")?;
    }
    for (name, value) in [
        ("PORT_L3", port::PORT_L3),
        ("PORT_ANY_IP", port::PORT_ANY_IP),
        ("PORT_MORE_IPS", port::PORT_MORE_IPS),
        ("PORT_NODE", port::PORT_NODE),
        ("PORT_REPLICATE", port::PORT_REPLICATE),
        ("ENDPOINT_REMOTE", endpoint::ENDPOINT_REMOTE),
        ("NETWORK_L3", network::NETWORK_L3),
        ("UPLINK_ANY_FAMILY", uplink::UPLINK_ANY_FAMILY),
        ("UPLINK_WIRES", uplink::UPLINK_WIRES),
        ("UPLINK_EVERY_FRAME", uplink::UPLINK_EVERY_FRAME),
        ("UPLINK_PROMISCUOUS", uplink::UPLINK_PROMISCUOUS),
        ("UPLINK_STEERS", uplink::UPLINK_STEERS),
        ("PORT_WIRE", port::PORT_WIRE),
        ("PORT_TRUNK", port::PORT_TRUNK),
        ("ENDPOINT_WIRE", endpoint::ENDPOINT_WIRE),
        ("ENDPOINT_SOCKET", endpoint::ENDPOINT_SOCKET),
        ("NETWORK_WIRE", network::NETWORK_WIRE),
        ("NETWORK_TRUNK", network::NETWORK_TRUNK),
        ("NETWORK_NEXT_HOP", network::NETWORK_NEXT_HOP),
        ("JUMP_WIRE", map::JUMP_WIRE),
        ("JUMP_TO_WIRE", map::JUMP_TO_WIRE),
        ("ENDPOINT_NO_PEER", endpoint::ENDPOINT_NO_PEER),
        ("ENDPOINT_GATEWAY", endpoint::ENDPOINT_GATEWAY),
        ("ROOT_FROM_POD", map::ROOT_FROM_POD),
        ("ROOT_FROM_OVERLAY", map::ROOT_FROM_OVERLAY),
        ("ROOT_FROM_GATEWAY", map::ROOT_FROM_GATEWAY),
        ("JUMP_ICMP_ERROR", map::JUMP_ICMP_ERROR),
        ("ROOT_XDP_UPLINK", map::ROOT_XDP_UPLINK),
        ("PORT_GUARD", port::PORT_GUARD),
        ("PORT_ROUTES", port::PORT_ROUTES),
        ("ENDPOINT_ROUTES", endpoint::ENDPOINT_ROUTES),
        ("ENDPOINT_GUARD", endpoint::ENDPOINT_GUARD),
        ("FLOOD_CLOSED", FLOOD_CLOSED),
        ("GUARD_ADOPT", guard::GUARD_ADOPT),
        ("GUARD_SWITCHED", guard::GUARD_SWITCHED),
        ("OTHERS", guard::OTHERS),
        ("FLOW_HIGH_OPENED", guard::FLOW_HIGH_OPENED),
        ("FLOW_ANSWERED", guard::FLOW_ANSWERED),
        ("FLOW_FIN_LOW", guard::FLOW_FIN_LOW),
        ("FLOW_FIN_HIGH", guard::FLOW_FIN_HIGH),
        ("FLOW_RESET", guard::FLOW_RESET),
        ("FLOW_DENIED", guard::FLOW_DENIED),
        ("TICK_SHIFT", guard::TICK_SHIFT),
        ("JUMP_REPLICATE", map::JUMP_REPLICATE),
        ("VTEP_CHUNKS", VTEP_CHUNKS),
        ("JUMP_FLOOD", map::JUMP_FLOOD),
        ("JUMP_ANSWER", map::JUMP_ANSWER),
        ("FLOOD_CHUNKS", FLOOD_CHUNKS),
    ] {
        writeln!(out, "number {name} {value}")?;
    }
    writeln!(out, "number FLOOD_CHUNK {FLOOD_CHUNK}")?;
    writeln!(out, "number VTEP_CHUNK {VTEP_CHUNK}")?;
    writeln!(out, "number EVENT_HEAD {EVENT_HEAD}")?;
    for reason in DropReason::ALL {
        writeln!(out, "reason {} {}", *reason as u32, reason.label())?;
    }
    Ok(out)
}

/// Returns the layout without drop reasons.
///
/// New ones change no layout: they may come without a new version, at the end.
fn without_reasons(layout: &str) -> Vec<&str> {
    layout
        .lines()
        .filter(|line| !line.starts_with("reason "))
        .collect()
}

fn reasons(layout: &str) -> Vec<&str> {
    layout
        .lines()
        .filter(|line| line.starts_with("reason "))
        .collect()
}

fn in_package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn blessing() -> bool {
    env::var_os("BLESS").is_some_and(|value| value == "1")
}

#[test]
fn the_layout_changes_with_the_abi_version_only() {
    let path = in_package("tests/abi.txt");
    let now = layout().unwrap();
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let version = |layout: &str| layout.lines().next().map(str::to_owned);
    let moved = without_reasons(&golden) != without_reasons(&now)
        || !reasons(&now).starts_with(&reasons(&golden));
    assert!(
        golden.is_empty() || !moved || version(&golden) != version(&now),
        "a map's layout or a published number has changed and ABI_VERSION ({ABI_VERSION}) has not: \
         an agent with this change would misread the maps of the one before it. Raise ABI_VERSION \
         in agent-common/src/lib.rs, then run BLESS=1 cargo test -p agent-common --test abi.\n\
         --- now\n{now}"
    );
    if blessing() {
        fs::write(&path, &now).unwrap();
        return;
    }
    assert_eq!(
        golden, now,
        "agent-common/tests/abi.txt is out of date: BLESS=1 cargo test -p agent-common --test abi"
    );
}

#[test]
fn map_names_fit_the_kernel_and_sizes_are_what_it_takes() {
    let layout = layout().unwrap();
    for line in layout.lines() {
        if let ["map", name, ..] = line.split(' ').collect::<Vec<_>>()[..] {
            // BPF_OBJ_NAME_LEN is 16, with the terminator.
            assert!(name.len() <= 15, "{name}");
        }
    }
    assert!(map::EVENTS_BYTES.is_power_of_two() && map::EVENTS_BYTES.is_multiple_of(4096));
}

const BEGIN: &str =
    "<!-- drop reasons: begin (BLESS=1 cargo test -p agent-common --test abi) -->\n";
const END: &str = "<!-- drop reasons: end -->";

#[test]
fn the_table_of_drop_reasons_in_the_documentation_is_fresh() {
    let path = in_package("../docs/datapath.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text
        .split_once(BEGIN)
        .expect("docs/datapath.md has the first marker");
    let (_, after) = rest
        .split_once(END)
        .expect("docs/datapath.md has the second marker");
    let mut table = "| Number | Label | Meaning |\n|---:|---|---|\n".to_owned();
    for reason in DropReason::ALL {
        let (number, label) = (*reason as u32, reason.label());
        writeln!(
            table,
            "| {number} | `{label}` | {} |",
            reason.meaning().trim()
        )
        .unwrap();
    }
    let fresh = format!("{before}{BEGIN}{table}{END}{after}");
    if blessing() {
        fs::write(&path, fresh).unwrap();
        return;
    }
    assert_eq!(
        text, fresh,
        "the table of drop reasons is out of date: BLESS=1 cargo test -p agent-common --test abi"
    );
}
