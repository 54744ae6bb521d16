use super::super::guard::Bound;
use super::*;

#[test]
fn a_mask_has_as_many_bits_as_the_prefix() {
    assert_eq!(mask(0, 4), [0; 4]);
    assert_eq!(mask(9, 4), [0xff, 0x80, 0, 0]);
    assert_eq!(mask(32, 4), [0xff; 4]);
    let v6 = mask(61, 16);
    assert_eq!(v6[..8], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf8]);
    assert_eq!(v6[8..], [0; 8]);
    assert_eq!(mask(128, 16), [0xff; 16]);
}

/// Guards have the comparisons that `nft --debug=netlink` shows.
///
/// Compared are data of `cmp`, `bitwise` and verdicts.
#[test]
#[cfg(target_endian = "little")]
fn guards_are_the_comparisons_that_the_kernel_knows() {
    let bytes = |packets: Packets, pass: bool| {
        let mut guard = Guard::stop(Bound::Elsewhere, &[packets]);
        guard.pass = pass;
        of_guard(&guard)
    };
    let has = |all: &[u8], part: &[u8]| all.windows(part.len()).any(|window| window == part);
    let starts = bytes(
        Packets::InBy(LinkName::Starts("podnet-e".to_owned())),
        false,
    );
    assert!(has(&starts, b"\x08\0\x02\0\0\0\0\x06"), "meta iifname");
    assert!(
        has(&starts, b"\x0c\0\x01\0podnet-e"),
        "no more than the start is compared"
    );
    assert!(has(&starts, b"\x08\0\x01\0\0\0\0\0"), "drop");
    let is = bytes(Packets::OutBy(LinkName::Is("uplink".to_owned())), true);
    assert!(has(&is, b"\x08\0\x02\0\0\0\0\x07"), "meta oifname");
    assert!(has(&is, b"\x14\0\x01\0uplink\0\0\0\0\0\0\0\0\0\0"));
    assert!(has(&is, b"\x08\0\x01\0\0\0\0\x01"), "accept");
    let known = bytes(Packets::OfNoConnection, false);
    assert!(
        has(&known, b"\x08\0\x01\0\x06\0\0\0"),
        "established, related"
    );
    assert!(has(&known, b"\x08\0\x02\0\0\0\0\0"), "cmp eq");
    let untracked = bytes(Packets::Untracked, false);
    assert!(
        has(&untracked, b"\x08\0\x01\0\x0e\0\0\0"),
        "new, established, related"
    );
    let translated = bytes(Packets::ToTranslated, false);
    assert!(has(&translated, b"\x08\0\x01\0\x20\0\0\0"), "dnat");
    assert!(has(&translated, b"\x08\0\x02\0\0\0\0\x01"), "cmp neq");
}

#[test]
fn a_guard_says_in_its_comment_what_it_does() {
    let link = LinkName::Starts("podnet-e".to_owned());
    let beyond = ("10.0.0.0".parse().expect("an address"), 8);
    let guard = Guard::pass(
        Bound::Elsewhere,
        &[Packets::InBy(link.clone()), Packets::To(beyond)],
    );
    assert_eq!(guard.to_string(), "pass in by podnet-e* to 10.0.0.0/8");
    let guard = Guard::stop(
        Bound::Here,
        &[Packets::InBy(link), Packets::NotFrom(beyond)],
    );
    assert_eq!(
        guard.to_string(),
        "stop in by podnet-e* not from 10.0.0.0/8"
    );
}

/// Guards of tunnels have the comparisons that `nft --debug=netlink` shows.
///
/// The rules are `udp dport 4789`, `fib saddr . iif oif` and `frag frag-off 0`.
#[test]
fn guards_of_tunnels_are_the_comparisons_that_the_kernel_knows() {
    let has = |packets: Packets, part: &[u8]| {
        let all = of_guard(&Guard::stop(Bound::Here, &[packets]));
        all.windows(part.len()).any(|window| window == part)
    };
    let tunnel = || Packets::UdpTo(4789);
    assert!(has(tunnel(), b"\x08\0\x02\0\0\0\0\x10"), "meta l4proto");
    assert!(has(tunnel(), b"\x05\0\x01\0\x11\0\0\0"), "cmp eq udp");
    let place = b"\x08\0\x02\0\0\0\0\x02\x08\0\x03\0\0\0\0\x02\x08\0\x04\0\0\0\0\x02";
    assert!(has(tunnel(), place), "2 bytes at 2 of the transport header");
    assert!(has(tunnel(), b"\x06\0\x01\0\x12\xb5\0\0"), "cmp eq 4789");
    let back = b"\x08\0\x02\0\0\0\0\x01\x08\0\x03\0\0\0\0\x09";
    assert!(has(Packets::ByReversePath, back), "oif by saddr and iif");
    let fragment = b"\x05\0\x02\0\x2c\0\0\0\x08\0\x03\0\0\0\0\x02";
    assert!(
        has(Packets::Beginning, fragment),
        "2 bytes at 2 of header 44"
    );
    assert!(
        has(Packets::Beginning, b"\x06\0\x01\0\xff\xf8\0\0"),
        "offset"
    );
    assert!(has(Packets::WithPorts, place), "whatever port");
}
