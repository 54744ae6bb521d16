use netlink_packet_core::Emitable;
use netlink_packet_route::link::LinkMessage;

use super::*;

fn body(message: &RouteNetlinkMessage) -> Vec<u8> {
    let (RouteNetlinkMessage::NewLink(link)
    | RouteNetlinkMessage::SetLink(link)
    | RouteNetlinkMessage::GetLink(link)) = message
    else {
        panic!("not a link message: {message:?}");
    };
    let link: &LinkMessage = link;
    let mut bytes = vec![0; link.buffer_len()];
    link.emit(&mut bytes);
    bytes
}

/// Types of the attributes, in order.
fn kinds(body: &[u8]) -> Vec<u16> {
    wire::attributes(&body[message::IFINFOMSG..])
        .map(|(kind, _)| kind)
        .collect()
}

#[test]
fn a_veth_request_names_both_ends_with_their_macs() {
    let spec = VethSpec {
        host_mac: Some([2, 0, 0, 0, 0, 1]),
        peer_mac: Some([2, 0, 0, 0, 0, 2]),
        queues: Some(1),
        ..VethSpec::new("h", "p")
    };
    let body = body(&message::create_veth(&spec));
    let host = Link::parse(&body).expect("a link");
    assert_eq!(
        (host.name.as_str(), host.mac),
        ("h", Some([2, 0, 0, 0, 0, 1]))
    );
    assert_eq!(host.kind.as_deref(), Some("veth"));

    let find = |bytes: &[u8], wanted: u16| {
        wire::attributes(bytes)
            .find(|(kind, _)| *kind == wanted)
            .expect("attribute")
            .1
            .to_vec()
    };
    let info = find(&body[message::IFINFOMSG..], message::IFLA_LINKINFO);
    const IFLA_INFO_DATA: u16 = 2;
    const VETH_INFO_PEER: u16 = 1;
    let peer = find(&find(&info, IFLA_INFO_DATA), VETH_INFO_PEER);
    let peer = Link::parse(&peer).expect("a link");
    assert_eq!(
        (peer.name.as_str(), peer.mac),
        ("p", Some([2, 0, 0, 0, 0, 2]))
    );
    assert_eq!(peer.mtu, 1500);
}

#[test]
fn an_empty_change_sends_no_attribute_and_touches_no_flag() {
    let body = body(&message::change(5, &LinkChange::default()));
    assert!(kinds(&body).is_empty());
    assert_eq!(wire::u32_at(&body, 4), Some(5));
    assert_eq!(
        (wire::u32_at(&body, 8), wire::u32_at(&body, 12)),
        (Some(0), Some(0))
    );
}

#[test]
fn down_is_a_change_mask_without_the_flag() {
    let body = body(&message::change(5, &LinkChange::updown(false)));
    assert_eq!(
        (wire::u32_at(&body, 8), wire::u32_at(&body, 12)),
        (Some(0), Some(1))
    );
}

#[test]
fn all_changes_fit_one_request() {
    const IFLA_AF_SPEC: u16 = 26;
    let change = LinkChange {
        name: Some("net1".to_owned()),
        mac: Some([2, 0, 0, 0, 0, 1]),
        mtu: Some(1400),
        alias: Some("a".to_owned()),
        addr_gen_mode: Some(AddrGenMode::None),
        ..LinkChange::default()
    };
    let mut kinds = kinds(&body(&message::change(5, &change)));
    kinds.sort_unstable();
    let mut wanted = [
        message::IFLA_ADDRESS,
        message::IFLA_IFNAME,
        message::IFLA_MTU,
        message::IFLA_IFALIAS,
        IFLA_AF_SPEC,
    ];
    wanted.sort_unstable();
    assert_eq!(kinds, wanted);
    assert_eq!(
        change.to_string(),
        "name net1, address 02:00:00:00:00:01, mtu 1400, alias \"a\", addrgenmode none"
    );
}

#[test]
fn a_link_with_attributes_of_unknown_form_is_still_read() {
    let mut bytes = body(&message::get_by_name("net1"));
    // IFLA_XDP and IFLA_AF_SPEC with contents that no decoder could make sense of.
    bytes.extend([5, 0, 43, 0, 0xff, 0, 0, 0, 7, 0, 26, 0, 1, 2, 3, 0]);
    assert_eq!(Link::parse(&bytes).expect("a link").name, "net1");
}

#[test]
fn a_truncated_link_is_not_a_link() {
    let bytes = body(&message::get_by_name("net1"));
    for length in 0..message::IFINFOMSG {
        assert_eq!(Link::parse(&bytes[..length]), None, "{length} bytes");
    }
}

#[test]
fn names_follow_the_kernels_rules() {
    for good in ["net1", "a", "eth0.100", "123456789012345", "ä"] {
        assert!(check_name(good).is_ok(), "{good:?}");
    }
    for bad in [
        "",
        ".",
        "..",
        "1234567890123456",
        "a/b",
        "a b",
        "a:b",
        "eth%d",
        "a\tb",
        "a\0",
    ] {
        assert!(
            matches!(check_name(bad), Err(Error::InvalidName { .. })),
            "{bad:?}"
        );
    }
}

#[test]
fn a_filter_wants_all_its_parts() {
    let link = Link {
        group: 0,
        ifindex: 1,
        name: "pn01".to_owned(),
        mac: None,
        mtu: 1500,
        up: false,
        promiscuous: false,
        carrier: false,
        kind: Some("veth".to_owned()),
        peer_ifindex: None,
        link_netnsid: None,
        controller_ifindex: None,
        alias: None,
    };
    let filter = |kind: Option<&str>, name: Option<&str>, alias: Option<&str>| LinkFilter {
        kind: kind.map(str::to_owned),
        name_prefix: name.map(str::to_owned),
        alias_prefix: alias.map(str::to_owned),
    };
    assert!(LinkFilter::default().admits(&link));
    assert!(filter(Some("veth"), Some("pn"), None).admits(&link));
    assert!(!filter(Some("vxlan"), Some("pn"), None).admits(&link));
    assert!(!filter(None, Some("px"), None).admits(&link));
    assert!(!filter(None, None, Some("pod")).admits(&link));
}
