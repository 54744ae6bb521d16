//! Random lives of a book against what must always hold.

use proptest::prelude::*;

use super::*;
use crate::host_ports::{HostPort, HostProtocol};
use crate::record::Shaper;

#[derive(Debug, Clone)]
enum Step {
    Add {
        container: u8,
        network: usize,
        ip: Option<u8>,
        mac: Option<u8>,
    },
    Advance {
        container: u8,
    },
    Release {
        container: u8,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let add = (
        0..24_u8,
        0..3_usize,
        prop::option::of(0..8_u8),
        prop::option::of(0..3_u8),
    )
        .prop_map(|(container, network, ip, mac)| Step::Add {
            container,
            network,
            ip,
            mac,
        });
    prop_oneof![
        5 => add,
        2 => (0..24_u8).prop_map(|container| Step::Advance { container }),
        3 => (0..24_u8).prop_map(|container| Step::Release { container }),
        1 => Just(Step::Restart),
    ]
}

/// Checks that no two attachments share an address, a MAC address or a port.
///
/// Numbers and names of networks belong together, and the sums are right.
fn check(ledger: &Ledger) {
    let records: Vec<&Attachment> = ledger.entries().map(|entry| &entry.record).collect();
    let (mut addresses, mut macs, mut ports) = (HashSet::new(), HashSet::new(), HashSet::new());
    for record in &records {
        let id = record.network.id;
        assert_eq!(ledger.name_of(id), Some(record.network.name.as_str()));
        assert!(
            macs.insert((id, record.mac)),
            "{} twice on {id}",
            record.mac
        );
        assert!(ports.insert(record.port_id) && record.port_id < MAX_PORTS);
        for lease in &record.leases {
            assert!(
                addresses.insert((id, lease.address)),
                "{} twice on {id}",
                lease.address
            );
            assert!(lease.prefix.contains(&lease.address));
        }
    }
    for id in records.iter().map(|record| record.network.id) {
        let here = records.iter().filter(|record| record.network.id == id);
        let counted = here.fold((0, 0), |(n, ips), record| {
            (n + 1, ips + record.leases.len())
        });
        assert_eq!(ledger.usage_of(id), counted);
    }
    assert_eq!(ledger.len(), records.len());
    let free = (0..MAX_PORTS).find(|port| !ports.contains(port));
    assert_eq!(ledger.free_port(), free);
    for record in &records {
        let live = ledger.get(&record.key).is_some_and(|entry| entry.live);
        let shaper = record.shaper.map(|it| [it.near, it.far]);
        let links = [record.host.ifindex]
            .into_iter()
            .chain(shaper.into_iter().flatten());
        for link in links.filter(|link| *link != 0) {
            assert_eq!(ledger.on_link(link).as_ref(), live.then_some(&record.key));
        }
    }
    let links = records.iter().map(|record| {
        usize::from(record.host.ifindex != 0) + 2 * usize::from(record.shaper.is_some())
    });
    assert_eq!(ledger.found.count(), links.sum::<usize>(), "and no others");
    let mapped: Vec<_> = ledger.with_host_ports().map(|it| &it.key).collect();
    let with_ports = records.iter().filter(|it| !it.host_ports.is_empty());
    assert_eq!(mapped, with_ports.map(|it| &it.key).collect::<Vec<_>>());
    let mut facts: Vec<&NetworkFacts> = Vec::new();
    for record in &records {
        if !facts.contains(&&record.network) {
            facts.push(&record.network);
        }
    }
    let listed: Vec<&NetworkFacts> = ledger.networks().collect();
    assert!(facts.iter().all(|it| listed.contains(it)));
    assert_eq!(
        listed.len(),
        facts.len(),
        "each once, and none that is gone"
    );
}

const MAX_PORTS: u16 = 12;

/// The record with links that are new at each call, as after a reboot.
fn placed(record: &Attachment, container: u8) -> Attachment {
    let first = record.host.ifindex.max(100 + 1000 * u32::from(container)) + 3;
    Attachment {
        host: HostEnd {
            ifindex: first,
            ..record.host.clone()
        },
        shaper: Some(Shaper {
            near: first + 1,
            far: first + 2,
            used: true,
        }),
        ..record.clone()
    }
}

/// A port of the node that leads to port 80 of a container.
fn mapped(container: u8) -> HostPort {
    HostPort {
        protocol: HostProtocol::Tcp,
        host_ip: None,
        host_port: 1000 + u16::from(container),
        container_port: 80,
    }
}

proptest! {
    #[test]
    fn nothing_is_held_twice_whatever_comes(steps in prop::collection::vec(step(), 0..80)) {
        let networks = [
            blue(),
            Network { name: "red".to_owned(), ..blue() },
            numbered(network("green", Mode::L3, &[("10.20.0.0/28", "10.20.0.1")]), 7),
        ];
        let mut ledger = Ledger::new(MAX_PORTS);
        for step in steps {
            match step {
                Step::Add { container, network, ip, mac } => {
                    let mut wish = wanted(&format!("c{container}"));
                    if ledger.get(&wish.key).is_some() {
                        continue;
                    }
                    let subnet = if network == 2 { "10.20.0" } else { "10.10.0" };
                    let ip = ip.map(|last| format!("{subnet}.{last}").parse::<IpAddr>().unwrap());
                    wish.ips.0 = ip.into_iter().map(Request::from).collect();
                    if container % 4 == 0 {
                        wish.host_ports = vec![mapped(container)];
                    }
                    wish.mac = mac.map(|last| (MacAddr([2, 0, 0, 0, 0, last]), "the test"));
                    let before = ledger.len();
                    let done = reserve(&mut ledger, &networks[network], wish);
                    prop_assert_eq!(ledger.len(), before + usize::from(done.is_ok()));
                }
                Step::Advance { container } => {
                    let key = key(&format!("c{container}"), "net1");
                    let placed = ledger.get(&key).map(|entry| placed(&entry.record, container));
                    if let Some(placed) = placed {
                        ledger.set_live(&placed);
                        ledger.set_state(&key, State::Added, true);
                    }
                }
                Step::Release { container } => ledger.release(&key(&format!("c{container}"), "net1")),
                Step::Restart => {
                    let mut restored = Ledger::new(MAX_PORTS);
                    for (name, id) in &ledger.ids {
                        restored.restore_id(name.clone(), *id);
                    }
                    for entry in ledger.entries() {
                        restored.restore(entry.record.clone());
                    }
                    prop_assert_eq!(&restored.ids, &ledger.ids);
                    prop_assert_eq!(&restored.ports, &ledger.ports);
                    ledger = restored;
                }
            }
            check(&ledger);
        }
    }

    #[test]
    fn what_is_released_can_be_had_again(count in 1_usize..6) {
        let mut ledger = Ledger::new(MAX_PORTS);
        let first: Vec<_> = (0..count).map(|n| add(&mut ledger, &blue(), &format!("a{n}"))).collect();
        for record in &first {
            ledger.release(&record.key);
        }
        prop_assert!(ledger.is_empty());
        prop_assert_eq!(ledger.usage_of(FIRST_OWN_ID), (0, 0));
        for (n, record) in first.iter().enumerate() {
            let again = asking(&format!("b{n}"), &ips(record).iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert!(reserve(&mut ledger, &blue(), again).is_ok());
        }
    }
}
