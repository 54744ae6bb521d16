//! The table of maps: names and sizes, in one place for programs and loader.
//!
//! Names are at most 15 bytes, the kernel's `BPF_OBJ_NAME_LEN` less the terminator.

/// Ports a node can have: entries of `PORTS`, and indexes of counters and buckets.
pub const MAX_PORTS: u32 = 4096;
/// Further addresses of ports.
pub const MAX_PORT_ADDRESSES: u32 = 16_384;
/// Entries of `FDB`.
pub const MAX_FDB: u32 = 65_536;
/// Entries of `ENDPOINTS`.
pub const MAX_ENDPOINTS: u32 = 131_072;
/// Chunks of `FLOOD`.
pub const MAX_FLOOD: u32 = 8_192;
/// Networks with members on other nodes.
pub const MAX_NETWORKS: u32 = 8_192;
/// Slots of `VTEPS`, of which the first is nobody's; entries of `VTEP_SOURCES`.
pub const MAX_VTEPS: u32 = 8_192;
/// Chunks of `FLOOD_VTEPS`.
pub const MAX_FLOOD_VTEPS: u32 = 8_192;
/// Interfaces by which packets of other nodes come in.
pub const MAX_UPLINKS: u32 = 256;
/// Interfaces by which networks with egress leave the node.
pub const MAX_OUTLETS: u32 = 256;
/// VLANs, segments and addresses that networks have at uplinks.
pub const MAX_WIRES: u32 = 65_536;
/// Members on other nodes that routers on an uplink lead to.
pub const MAX_NEXT_HOPS: u32 = 131_072;
/// Prefixes to which virtual gateways route, in other networks.
pub const MAX_ROUTES: u32 = 65_536;
/// Ports that policies speak of: as many as there can be with any `--max-ports`.
pub const MAX_GUARDS: u32 = 65_536;
/// Addresses of members and nodes of guarded networks.
///
/// All generations of their policies count.
pub const MAX_ATOMS: u32 = 262_144;
/// Blocks of addresses in policies.
pub const MAX_BLOCKS: u32 = 65_536;
/// Generations of policies: two of a network while they change.
pub const MAX_GENERATIONS: u32 = 4_096;
/// Rows of atoms in sets.
pub const MAX_SET_ROWS: u32 = 1_048_576;
/// Rows.
pub const MAX_ROWS: u32 = 262_144;
/// Connections that are followed.
pub const MAX_FLOWS: u32 = 131_072;
/// Buckets of `FLOWS`, a power of two.
pub const FLOW_BUCKETS: u32 = 16_384;
/// Packets in fragments that are followed.
pub const MAX_FRAGMENTS: u32 = 8_192;
/// Slots of connections that the switch of memif ports may carry over.
///
/// Those of the secret are among them.
pub const MAX_SWITCH_FLOWS: u32 = 16_384;
/// Ports of Services on all networks.
pub const MAX_SERVICES: u32 = 65_536;
/// Backends of Services' ports.
///
/// Those of a set that takes the place of another one count, too.
pub const MAX_BACKENDS: u32 = 524_288;
/// Clients of Services with affinity.
pub const MAX_AFFINITIES: u32 = 16_384;
/// Drop reasons.
pub const MAX_DROP_REASONS: u32 = 64;
/// Entries of `PORT_REASONS`.
///
/// One for each port and reason, so that no port takes the room of another.
pub const MAX_PORT_REASONS: u32 = MAX_PORTS * MAX_DROP_REASONS;
/// (network, reason) pairs that are counted apart.
pub const MAX_NETWORK_DROPS: u32 = 32_768;
/// Bytes of the event ring; a power of two and a multiple of the page size.
pub const EVENTS_BYTES: u32 = 256 * 1024;

/// `ROOT[ROOT_FROM_POD]` is what the pod dispatcher calls.
pub const ROOT_FROM_POD: u32 = 0;
/// `ROOT[ROOT_FROM_OVERLAY]` is what the dispatcher of the tunnel device calls.
pub const ROOT_FROM_OVERLAY: u32 = 1;
/// `ROOT[ROOT_FROM_UPLINK]` is what the dispatcher of an uplink calls.
pub const ROOT_FROM_UPLINK: u32 = 2;
/// `ROOT[ROOT_FROM_GATEWAY]` is what the dispatcher of a gateway's link calls.
pub const ROOT_FROM_GATEWAY: u32 = 3;
/// `ROOT[ROOT_TO_POD]` is called for what the node's stack sends to a pod.
pub const ROOT_TO_POD: u32 = 4;
/// Slots of `ROOT`.
pub const ROOT_SLOTS: u32 = 8;
/// `ROOT_XDP[ROOT_XDP_UPLINK]` is what the XDP dispatcher of an uplink calls.
pub const ROOT_XDP_UPLINK: u32 = 0;
/// Slots of `ROOT_XDP`.
pub const ROOT_XDP_SLOTS: u32 = 4;

/// `JUMP[JUMP_FLOOD]` replicates a frame.
pub const JUMP_FLOOD: u32 = 0;
/// `JUMP[JUMP_ANSWER]` turns a question into its answer.
pub const JUMP_ANSWER: u32 = 1;
/// `JUMP[JUMP_REPLICATE]` replicates a frame to other nodes.
pub const JUMP_REPLICATE: u32 = 2;
/// `JUMP[JUMP_ICMP_ERROR]` turns a packet into the ICMP error about it.
pub const JUMP_ICMP_ERROR: u32 = 3;
/// `JUMP[JUMP_WIRE]` takes what an uplink brings for networks that it belongs to.
pub const JUMP_WIRE: u32 = 4;
/// `JUMP[JUMP_TO_WIRE]` sends a frame of a pod out of its network's uplink.
pub const JUMP_TO_WIRE: u32 = 5;
/// `JUMP[JUMP_GUARD_POD]` judges what a port of a guarded network sends.
pub const JUMP_GUARD_POD: u32 = 6;
/// `JUMP[JUMP_GUARD_IN]` judges what comes from elsewhere for a guarded port.
pub const JUMP_GUARD_IN: u32 = 7;
/// `JUMP[JUMP_CARRY]` carries out the decision about a frame.
///
/// Policies have let it pass.
pub const JUMP_CARRY: u32 = 8;
/// `JUMP[JUMP_GUARD_TO]` judges what the node's stack sends to a guarded port.
pub const JUMP_GUARD_TO: u32 = 9;
/// Shows a connection to the switch of memif ports, then goes on at [`JUMP_CARRY`].
pub const JUMP_PUBLISH: u32 = 10;
/// `JUMP[JUMP_SERVICE]` translates what a pod sends to a Service.
pub const JUMP_SERVICE: u32 = 11;
/// `JUMP[JUMP_REPLY]` delivers what may be an answer of a Service.
pub const JUMP_REPLY: u32 = 12;
/// `JUMP[JUMP_REPLY_TO]` passes on what the node's stack sends to a pod.
///
/// It may be an answer of a Service.
pub const JUMP_REPLY_TO: u32 = 13;
/// Slots of `JUMP`.
pub const JUMP_SLOTS: u32 = 16;
