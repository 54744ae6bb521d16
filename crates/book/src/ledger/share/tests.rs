use api::{ClaimHolder, Mode, PodHolder};

use super::*;
use crate::ledger::Wanted;
use crate::samples::{host, network, wanted};

fn key_of(container: &str) -> cni_spec::AttachmentKey {
    crate::samples::key(container, "net1")
}

mod model;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn blue() -> Network {
    network("blue", Mode::L2, &[("10.10.0.0/26", "10.10.0.1")])
}

fn pod(uid: &str) -> Holder {
    Holder::Pod(PodHolder {
        namespace: "shop".to_owned(),
        name: "web-0".to_owned(),
        uid: uid.to_owned(),
        node: "n2".to_owned(),
    })
}

fn claim(uid: &str) -> Holder {
    Holder::Claim(ClaimHolder {
        namespace: "vms".to_owned(),
        name: "vm-a".to_owned(),
        uid: uid.to_owned(),
    })
}

fn share(blocks: &[&str], reserved: &[(&str, Holder, bool)]) -> HashMap<String, Share> {
    let reserved = reserved.iter().map(|(address, holder, granted)| {
        let reserved = Reserved {
            holder: holder.clone(),
            granted: *granted,
        };
        (ip(address), reserved)
    });
    let share = Share {
        blocks: blocks.iter().map(|block| block.parse().unwrap()).collect(),
        reserved: reserved.collect(),
    };
    HashMap::from([("blue".to_owned(), share)])
}

fn reserve(ledger: &mut Ledger, wanted: Wanted) -> Result<Attachment, BookError> {
    let host = host(&wanted, 0);
    ledger.reserve(wanted, &blue(), host)
}

/// Adds an attachment of a container that asks for these addresses.
fn add(
    ledger: &mut Ledger,
    container: &str,
    ips: &[&str],
    holder: Option<Holder>,
) -> Result<Vec<String>, BookError> {
    let requests = ips.iter().map(|address| Request::from(ip(address)));
    let wish = Wanted {
        ips: (requests.collect(), "the test"),
        holder,
        ..wanted(container)
    };
    let record = reserve(ledger, wish)?;
    let leases = record.leases.iter();
    Ok(leases.map(|lease| lease.address.to_string()).collect())
}

/// A block that was not taken gives no address.
#[test]
fn a_node_without_a_block_gives_nothing() {
    let mut ledger = Ledger::new(64);
    ledger.set_shares(HashMap::new());
    let refused = add(&mut ledger, "c1", &[], None);
    assert!(
        matches!(
            refused,
            Err(BookError::Address {
                source: IpamError::NoRoom { .. },
                ..
            })
        ),
        "{refused:?}"
    );
    let refused = add(&mut ledger, "c1", &["10.10.0.9"], Some(pod("u1")));
    assert!(
        matches!(
            &refused,
            Err(BookError::Refused(refused)) if matches!(**refused, AddressError::NotGranted { .. })
        ),
        "{refused:?}"
    );
    assert!(ledger.is_empty());
    proof::of!("PAIN-IP-2");
}

#[test]
fn only_addresses_of_its_blocks_are_given_and_all_of_them() {
    let mut ledger = Ledger::new(64);
    ledger.set_shares(share(&["10.10.0.32/28", "10.10.0.0/28"], &[]));
    let mut given: Vec<String> = Vec::new();
    while let Ok(ips) = add(&mut ledger, &format!("c{}", given.len()), &[], None) {
        given.extend(ips);
    }
    // Less the network's own address and the gateway.
    assert_eq!(given.len(), 14 + 16);
    assert_eq!(
        (given[0].as_str(), given[14].as_str()),
        ("10.10.0.2", "10.10.0.32")
    );
    assert_eq!(
        ledger.given_of("blue", &"10.10.0.32/28".parse().unwrap()),
        16
    );
}

#[test]
fn an_address_by_name_of_an_own_block_needs_nobody_else() {
    let mut ledger = Ledger::new(64);
    ledger.set_shares(share(&["10.10.0.0/28"], &[]));
    assert_eq!(
        add(&mut ledger, "c1", &["10.10.0.9"], Some(pod("u1"))).unwrap(),
        ["10.10.0.9"]
    );
    let record = ledger.holder_of("blue", ip("10.10.0.9")).unwrap();
    assert_eq!(record.key.container.as_str(), "c1");
}

#[test]
fn a_reserved_address_is_its_holders_only_granted_or_not() {
    for granted in [false, true] {
        let mut ledger = Ledger::new(64);
        let reserved = [
            ("10.10.0.2", pod("u1"), granted),
            ("10.10.0.3", claim("k1"), granted),
        ];
        ledger.set_shares(share(&["10.10.0.0/28"], &reserved));
        assert_eq!(add(&mut ledger, "c1", &[], None).unwrap(), ["10.10.0.4"]);
        for other in [None, Some(pod("u2")), Some(claim("u1"))] {
            let refused = add(&mut ledger, "c2", &["10.10.0.2"], other).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "network blue: 10.10.0.2 is reserved for pod shop/web-0 on node n2; request another address"
            );
        }
        let refused = add(&mut ledger, "c2", &["10.10.0.3"], None).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("reserved for IPAMClaim vms/vm-a"),
            "{refused}"
        );
        let own = add(&mut ledger, "c3", &["10.10.0.2"], Some(pod("u1")));
        assert_eq!(own.is_ok(), granted, "{own:?}");
    }
}

#[test]
fn a_granted_address_of_another_nodes_block_is_given() {
    let mut ledger = Ledger::new(64);
    ledger.set_shares(share(&[], &[("10.10.0.40", claim("k1"), true)]));
    let got = add(&mut ledger, "c1", &["10.10.0.40"], Some(claim("k1")));
    assert_eq!(got.unwrap(), ["10.10.0.40"]);
    // And to one attachment of this node only.
    let refused = add(&mut ledger, "c2", &["10.10.0.40"], Some(claim("k1")));
    assert!(matches!(
        refused,
        Err(BookError::Address {
            source: IpamError::Held { .. },
            ..
        })
    ));
}

#[test]
fn what_is_picked_is_nobody_elses_until_it_is_reserved() {
    let mut ledger = Ledger::new(64);
    ledger.set_shares(share(&["10.10.0.0/28"], &[]));
    let picked = ledger.pick(&blue(), &claim("k1")).unwrap();
    assert_eq!(picked, [ip("10.10.0.2")]);
    assert_eq!(add(&mut ledger, "c1", &[], None).unwrap(), ["10.10.0.3"]);
    assert_eq!(
        ledger.pick(&blue(), &claim("k2")).unwrap(),
        [ip("10.10.0.4")]
    );
    let refused = add(&mut ledger, "c2", &["10.10.0.2"], Some(pod("u1"))).unwrap_err();
    assert!(
        refused.to_string().contains("IPAMClaim vms/vm-a"),
        "{refused}"
    );
    ledger.unpick("blue", &picked);
    assert!(add(&mut ledger, "c2", &["10.10.0.2"], Some(pod("u1"))).is_ok());
}

/// Replaces an agent that allocated numbers itself by one with the cluster's.
#[test]
fn attachments_keep_their_number_and_the_network_gets_the_clusters_after_the_last() {
    let mut ledger = Ledger::new(64);
    ledger.set_shares(share(&["10.10.0.0/28"], &[]));
    let mut attach = |container: &str, id: Option<u32>| {
        let network = Network {
            id: id.and_then(api::NetworkId::new),
            ..blue()
        };
        let wish = wanted(container);
        let host = host(&wish, 0);
        let record = ledger.reserve(wish, &network, host).unwrap();
        let named = ledger.name_of(record.network.id).map(str::to_owned);
        assert_eq!(named.as_deref(), Some("blue"));
        if container == "c2" {
            ledger.release(&key_of("c1"));
            ledger.release(&key_of("c2"));
        }
        record.network.id
    };
    let own = attach("c1", None);
    assert_eq!(attach("c2", Some(9_000_000)), own);
    assert_eq!(attach("c3", Some(9_000_000)), 9_000_000);
    assert_eq!(ledger.id_of("blue"), Some(9_000_000));
}

#[test]
fn what_is_given_stays_when_the_block_goes() {
    let mut ledger = Ledger::new(64);
    ledger.set_shares(share(&["10.10.0.0/28"], &[]));
    add(&mut ledger, "c1", &[], None).unwrap();
    ledger.set_shares(HashMap::new());
    assert_eq!(ledger.given_of("blue", &"10.10.0.0/28".parse().unwrap()), 1);
    assert_eq!(ledger.networks_in_use().collect::<Vec<_>>(), ["blue"]);
    assert!(add(&mut ledger, "c2", &[], None).is_err());
}
