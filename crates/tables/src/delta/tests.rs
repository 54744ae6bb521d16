use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::{GATEWAY_V4, MacAddr};
use agent_common::endpoint::{ENDPOINT_REMOTE, Endpoint};
use agent_common::flood::FLOOD_CHUNK;
use api::{Mode, Share, Transport, Wire};
use book::record::{HostEnd, Lease, Shaper};
use book::samples;
use datapath::DatapathError;
use proptest::prelude::*;

use super::*;
use crate::Reach;
use crate::beyond::Beyond;
use crate::known::{Known, Maps};
use remotes::Resolved;

const TUNNEL_PORT: u16 = 4789;

/// Maps in memory, in which a write can fail.
#[derive(Debug, Default)]
struct FakeMaps {
    entries: Entries,
    /// Writes so far.
    writes: usize,
    /// Writes until one fails.
    left: Option<usize>,
}

impl FakeMaps {
    fn spend(&mut self) -> Result<(), DatapathError> {
        self.writes += 1;
        match &mut self.left {
            Some(0) => {
                self.left = None;
                Err(DatapathError::NoObject)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Maps for FakeMaps {
    fn dump(&self) -> Result<Entries, DatapathError> {
        Ok(self.entries.clone())
    }

    fn apply(&mut self, old: &Entries, new: &Entries) -> Result<(), DatapathError> {
        macro_rules! each {
            ($($table:ident),+) => {$(
                for (key, value) in &old.$table {
                    assert_eq!(self.entries.$table.get(key), Some(value), "it is there");
                    if !new.$table.contains_key(key) {
                        self.spend()?;
                        self.entries.$table.remove(key);
                    }
                }
                for (key, value) in &new.$table {
                    self.spend()?;
                    let before = self.entries.$table.insert(*key, *value);
                    assert_eq!(before.as_ref(), old.$table.get(key), "known before");
                }
            )+};
        }
        each!(
            ports,
            port_addresses,
            fdb,
            endpoints,
            flood,
            networks,
            flood_vteps,
            wires,
            next_hops
        );
        Ok(())
    }
}

/// A network on a node, with what should be in its tables.
struct Scene {
    base: Attachment,
    live: BTreeMap<u16, Attachment>,
    others: Others,
    /// Last octets of members elsewhere.
    far: BTreeSet<u8>,
    known: Known,
    maps: FakeMaps,
    /// Times when all entries of the network were made.
    whole: usize,
}

impl Scene {
    fn new(kind: usize) -> Self {
        let subnets = [("10.10.0.0/16", "10.10.255.1"), ("fe80::/64", "")];
        let of_kind = |mode, transport, share: Option<Share>| api::Network {
            transport,
            wire: share.map(|share| Wire {
                uplink: "eth1".to_owned(),
                share,
                ether_types: vec![0x88b5],
            }),
            egress: match mode {
                Mode::L3 => api::Egress::Masquerade,
                Mode::L2 => api::Egress::None,
            },
            ..samples::network("blue", mode, &subnets)
        };
        let network = match kind {
            0 => of_kind(Mode::L2, Transport::Local, None),
            1 => of_kind(Mode::L3, Transport::Local, None),
            2 => of_kind(Mode::L2, Transport::Vxlan, None),
            3 => of_kind(Mode::L3, Transport::Native, Some(Share::Routed)),
            _ => of_kind(Mode::L2, Transport::Native, Some(Share::Untagged)),
        };
        let reach = match &network.wire {
            Some(_) => Reach::Wire {
                uplink: 5,
                hops: Arc::default(),
                routers: Routers::default(),
            },
            None => Reach::Tunnels {
                device: 4,
                own: Vec::new(),
            },
        };
        Self {
            base: samples::record(&network, |_| {}),
            live: BTreeMap::new(),
            others: Others {
                reach,
                said: Some(Arc::default()),
                complete: true,
                ..Others::default()
            },
            far: BTreeSet::new(),
            known: Known::default(),
            maps: FakeMaps::default(),
            whole: 0,
        }
    }

    fn network(&self) -> u32 {
        self.base.network.id
    }

    /// The attachment with this port id.
    ///
    /// An `ip` other than 0 is an address that may be another's, too.
    fn attachment(&self, port_id: u16, age: u32, ip: u8, shaper: u8) -> Attachment {
        let [high, low] = port_id.to_be_bytes();
        let mac = |low| MacAddr([2, 0, 0, 0, high, low]);
        let own = IpAddr::from([10, 10, high, low]);
        let second = match ip {
            0 => None,
            1 => Some(IpAddr::V4(GATEWAY_V4)),
            2 => Some(mac(low ^ 1).link_local().into()),
            3 => Some(IpAddr::from([10, 10, high, low ^ 1])),
            4 => Some("10.10.255.1".parse().unwrap()),
            _ => Some(IpAddr::from([10, 11, high, low])),
        };
        let lease = |address| Lease {
            address,
            ..self.base.leases[0].clone()
        };
        let ifindex = 100 + u32::from(port_id) + 2000 * age;
        Attachment {
            key: samples::key(&format!("c{port_id}"), "net1"),
            mac: mac(low),
            leases: [own].into_iter().chain(second).map(lease).collect(),
            host: HostEnd {
                name: format!("pn{port_id}"),
                ifindex,
            },
            port_id,
            shaper: (shaper > 0).then_some(Shaper {
                near: 50_000 + ifindex,
                far: 90_000 + ifindex,
                used: shaper > 1,
            }),
            ..self.base.clone()
        }
    }

    /// Entries of members elsewhere, where pods of this node may be.
    fn beyond(&self) -> Entries {
        let mut entries = Entries::default();
        let network = self.network();
        for last in &self.far {
            let mac = MacAddr([2, 0, 0, 0, 0, *last]);
            let endpoint = Endpoint {
                ifindex: 3,
                flags: ENDPOINT_REMOTE,
                mac,
                port_id: u16::MAX,
            };
            entries.fdb.insert(FdbKey::new(network, mac), endpoint);
            let ip = Ip16::from_v4([10, 10, 0, *last]);
            entries
                .endpoints
                .insert(EndpointKey { network, ip }, endpoint);
        }
        entries
    }

    fn wanted(&self) -> Layers {
        let network = self.network();
        let all: Vec<&Attachment> = self.live.values().collect();
        let (mut own, facts) = desired::own(network, all.iter().copied(), &self.others);
        desired::guard_tunnels(&mut own, TUNNEL_PORT);
        let beyond = facts.map(|facts| {
            let source = Source::new(&Members::of(facts), &self.others);
            Arc::new(Beyond::new(self.beyond(), Some(source)))
        });
        Layers {
            basis: Basis::of(&all, &self.others, &own),
            own,
            beyond: beyond.unwrap_or_default(),
        }
    }

    fn write_whole(&mut self) -> Result<(), DatapathError> {
        self.whole += 1;
        let wanted = self.wanted();
        self.known
            .write(&mut self.maps, self.base.network.id, wanted)
    }

    fn write_port(&mut self, port_id: u16) -> Result<(), DatapathError> {
        let (wanted, others) = (self.live.get(&port_id), &self.others);
        let change = |layers: &mut Layers| of_port(layers, port_id, wanted, others, TUNNEL_PORT);
        let network = self.base.network.id;
        if self.known.write_change(&mut self.maps, network, change)? {
            return Ok(());
        }
        self.write_whole()
    }

    /// The tables that one reconciliation of an empty node would leave.
    fn expected(&self) -> Entries {
        let mut fresh = FakeMaps::default();
        let wanted = self.wanted();
        Known::default()
            .write(&mut fresh, self.network(), wanted)
            .unwrap();
        fresh.entries
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put {
        port: u16,
        age: u32,
        ip: u8,
        shaper: u8,
        mtu: u16,
    },
    Remove(u16),
    /// Somebody else's change: surroundings of the whole network.
    WayOut(Option<u32>),
    Unsteered(u16),
    /// Other nodes say something new.
    Far(BTreeSet<u8>),
    /// One of the next writes fails.
    Fail(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let put = (
        0..8_u16,
        0..2_u32,
        prop_oneof![6 => Just(0_u8), 4 => 1..6_u8],
        prop_oneof![3 => Just(0_u8), 1 => 1..3_u8],
        prop_oneof![9 => Just(1500_u16), 1 => Just(1400_u16)],
    );
    let put = put.prop_map(|(port, age, ip, shaper, mtu)| Step::Put {
        port,
        age,
        ip,
        shaper,
        mtu,
    });
    let far = prop::collection::btree_set(0..10_u8, 0..5);
    let step = prop_oneof![
        10 => put,
        6 => (0..8_u16).prop_map(Step::Remove),
        1 => prop::option::of(Just(77_u32)).prop_map(Step::WayOut),
        1 => (0..8_u16).prop_map(Step::Unsteered),
        1 => far.prop_map(Step::Far),
        2 => (0..6_usize).prop_map(Step::Fail),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any change, also a failed one, leaves the tables of one reconciliation.
    #[test]
    fn changes_of_single_ports_leave_the_tables_that_a_whole_reconciliation_leaves(
        kind in 0..5_usize,
        ports in prop_oneof![4 => Just(0_u16), 1 => 125..132_u16, 1 => 250..258_u16],
        steps in steps(),
    ) {
        let mut scene = Scene::new(kind);
        for port in 0..ports {
            // Some of those that steps change are in the middle of all.
            let port = port + 3;
            let age = u32::from(port % 2);
            scene.live.insert(port, scene.attachment(port, age, 0, 0));
        }
        scene.write_whole().unwrap();
        for step in steps {
            let written = match step {
                Step::Put { port, age, ip, shaper, mtu } => {
                    let mut attachment = scene.attachment(port, age, ip, shaper);
                    attachment.network.mtu = mtu;
                    scene.live.insert(port, attachment);
                    scene.write_port(port)
                }
                Step::Remove(port) => {
                    scene.live.remove(&port);
                    scene.write_port(port)
                }
                Step::WayOut(ifindex) => {
                    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
                    scene.others.way_out = ifindex.map(|ifindex| WayOut { ifindex, mac });
                    scene.write_whole()
                }
                Step::Unsteered(port) => {
                    scene.others.unsteered.insert(port);
                    scene.write_whole()
                }
                Step::Far(far) => {
                    scene.far = far;
                    scene.others.said = Some(Arc::<Resolved>::default());
                    // The next change of a port has it written.
                    continue;
                }
                Step::Fail(after) => {
                    scene.maps.left = Some(after);
                    continue;
                }
            };
            if written.is_ok() {
                prop_assert_eq!(&scene.maps.entries, &scene.expected());
            }
        }
        scene.maps.left = None;
        // What a failure left is right after the next change of a port, whatever that is.
        scene.write_port(0).unwrap();
        prop_assert_eq!(&scene.maps.entries, &scene.expected());
    }
}

/// A network of so many ports, of which one more has come by itself.
fn with_one_more(kind: usize, ports: u16) -> Scene {
    let mut scene = Scene::new(kind);
    for port in 0..=ports {
        scene.live.insert(port, scene.attachment(port, 0, 5, 1));
    }
    let newest = scene.live.remove(&ports).unwrap();
    scene.write_whole().unwrap();
    (scene.maps.writes, scene.whole) = (0, 0);
    scene.live.insert(ports, newest);
    scene.write_port(ports).unwrap();
    assert_eq!(scene.whole, 0, "no other port is looked at");
    scene
}

#[test]
fn a_port_comes_and_goes_with_the_same_writes_among_ten_and_among_four_thousand() {
    for kind in 0..5 {
        let [few, many] = [10, 4000].map(|ports| {
            let mut scene = with_one_more(kind, ports);
            let coming = scene.maps.writes;
            scene.live.remove(&ports);
            scene.write_port(ports).unwrap();
            assert_eq!(scene.whole, 0, "no other port is looked at");
            (coming, scene.maps.writes - coming)
        });
        // The number of all receivers is in the first chunk, the newcomer in the last.
        let more = usize::from(!Scene::new(kind).base.network.routed);
        assert_eq!(many, (few.0 + more, few.1 + more), "network {kind}");
    }
}

/// Later chunks follow: there are few of them, and each is written once.
#[test]
fn the_oldest_of_four_thousand_ports_takes_a_write_for_each_chunk_along() {
    let mut scene = with_one_more(0, 4000);
    let before = scene.maps.writes;
    scene.live.remove(&0);
    scene.write_port(0).unwrap();
    assert_eq!(scene.whole, 0);
    let chunks = 4001_usize.div_ceil(FLOOD_CHUNK);
    // Two of PORTS, one further address, one of FDB, three of ENDPOINTS.
    assert_eq!(scene.maps.writes - before, chunks + 7);
    assert_eq!(scene.maps.entries, scene.expected());
}

/// A port that fails on its way to another interface is back on the one before.
#[test]
fn addresses_that_an_interrupted_change_left_are_those_of_a_port_that_comes_back() {
    let mut scene = Scene::new(0);
    for (age, left) in [(1, None), (0, Some(1)), (1, None)] {
        let ip = if age == 1 { 3 } else { 0 };
        scene.live.insert(2, scene.attachment(2, age, ip, 0));
        scene.maps.left = left;
        assert_eq!(scene.write_port(2).is_err(), left.is_some());
    }
    assert_eq!(scene.maps.entries, scene.expected());
}

/// An address that is the link-local one of another port stays without it.
#[test]
fn entries_that_two_ports_claim_are_made_with_all_others() {
    for kind in 0..5 {
        let mut scene = Scene::new(kind);
        for port in [2, 3, 6] {
            // That of port 2 is what port 3 is found at, where it is found by one.
            let ip = if port == 2 { 2 } else { 0 };
            scene.live.insert(port, scene.attachment(port, 0, ip, 0));
            scene.write_port(port).unwrap();
        }
        scene.live.remove(&3);
        scene.write_port(3).unwrap();
        assert_eq!(scene.maps.entries, scene.expected(), "network {kind}");
    }
}

#[test]
fn a_repeated_change_writes_nothing() {
    let mut scene = with_one_more(2, 10);
    let before = scene.maps.writes;
    scene.write_port(10).unwrap();
    scene.live.remove(&10);
    scene.write_port(10).unwrap();
    let removed = scene.maps.writes;
    scene.write_port(10).unwrap();
    assert!(before < removed && removed == scene.maps.writes);
    assert_eq!(scene.whole, 0);
}
