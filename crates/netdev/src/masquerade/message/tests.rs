use super::super::TABLE;
use super::*;

fn cidr(ip: &str, length: u8) -> Cidr {
    Cidr(ip.parse().expect("an address"), length)
}

/// What `nft --debug=netlink` and strace show of `nft add rule inet podnet leaving ip daddr
/// 10.0.0.0/9 return`, little-endian as netlink's own numbers are there.
#[test]
#[cfg(target_endian = "little")]
fn a_rule_is_the_bytes_that_the_kernel_knows() {
    let mut batch = Batch::new(6, TABLE);
    batch.add_rule(&Rule::To(cidr("10.0.0.0", 9)));
    let bytes = batch.into_bytes();
    let (begin, rule) = bytes.split_at(20);
    assert_eq!(
        begin,
        [
            20, 0, 0, 0, 0x10, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10
        ]
    );
    let length = u32::try_from(rule.len())
        .expect("a short rule")
        .to_le_bytes();
    assert_eq!(rule[..4], length);
    // NFT_MSG_NEWRULE of nf_tables; request, create, append; number 8; family inet.
    assert_eq!(
        rule[4..20],
        [6, 10, 1, 0x0c, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    );
    assert_eq!(&rule[20..32], b"\x0b\0\x01\0podnet\0\0");
    assert_eq!(&rule[32..44], b"\x0c\0\x02\0leaving\0");
    let expressions = [
        // meta load nfproto => reg 1
        &b"\x24\0\x01\x80\x09\0\x01\0meta\0\0\0\0\x14\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\x0f"[..],
        // cmp eq reg 1 0x02
        b"\x2c\0\x01\x80\x08\0\x01\0cmp\0\x20\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\0\x0c\0\x03\x80\x05\0\x01\0\x02\0\0\0",
        // payload load 4b @ network header + 16 => reg 1
        b"\x34\0\x01\x80\x0c\0\x01\0payload\0\x24\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\x01\x08\0\x03\0\0\0\0\x10\x08\0\x04\0\0\0\0\x04",
        // bitwise reg 1 = (reg 1 & 0xff800000) ^ 0
        b"\x44\0\x01\x80\x0c\0\x01\0bitwise\0\x34\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\x01\x08\0\x03\0\0\0\0\x04\x0c\0\x04\x80\x08\0\x01\0\xff\x80\0\0\x0c\0\x05\x80\x08\0\x01\0\0\0\0\0",
        // cmp eq reg 1 10.0.0.0
        b"\x2c\0\x01\x80\x08\0\x01\0cmp\0\x20\0\x02\x80\x08\0\x01\0\0\0\0\x01\x08\0\x02\0\0\0\0\0\x0c\0\x03\x80\x08\0\x01\0\x0a\0\0\0",
        // immediate reg 0 return
        b"\x30\0\x01\x80\x0e\0\x01\0immediate\0\0\0\x1c\0\x02\x80\x08\0\x01\0\0\0\0\0\x10\0\x02\x80\x0c\0\x02\x80\x08\0\x01\0\xff\xff\xff\xfb",
    ]
    .concat();
    let inside = &rule[44..44 + 4 + expressions.len()];
    assert_eq!(inside[2..4], [4, 0x80]);
    assert_eq!(inside[4..], expressions);
    let comment = &rule[44 + 4 + expressions.len()..];
    assert_eq!(&comment[2..6], b"\x07\0\0\x12");
    assert_eq!(&comment[6..], b"not to 10.0.0.0/9\0");
}

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

#[test]
fn messages_of_a_batch_follow_one_another_and_the_last_change_is_acknowledged() {
    let mut batch = Batch::new(0, TABLE);
    batch.add_table();
    batch.add_postrouting_chain("postrouting");
    batch.add_rule(&Rule::Out);
    let last = batch.close();
    let bytes = batch.into_bytes();
    let read: Vec<_> = wire::messages(&bytes)
        .map(|message| (message.kind, message.flags & NLM_F_ACK, message.sequence))
        .collect();
    let acknowledged = (kind(NFT_MSG_NEWRULE), NLM_F_ACK, 4);
    assert_eq!(
        read,
        [
            (NFNL_MSG_BATCH_BEGIN, 0, 1),
            (kind(NFT_MSG_NEWTABLE), 0, 2),
            (kind(NFT_MSG_NEWCHAIN), 0, 3),
            acknowledged,
            (NFNL_MSG_BATCH_END, 0, 5),
        ]
    );
    assert_eq!(last, 4);
}

#[test]
fn a_rule_is_read_back_with_its_comment_and_one_of_another_table_is_not() {
    for rule in [
        Rule::From(cidr("fd00:10::", 64)),
        Rule::To(cidr("10.0.0.0", 8)),
        Rule::Out,
    ] {
        let mut batch = Batch::new(0, TABLE);
        batch.add_rule(&rule);
        let bytes = batch.into_bytes();
        let message = wire::messages(&bytes).nth(1).expect("the rule");
        let read = parse_rule(message.body, TABLE).expect("a rule of ours");
        assert_eq!(read, (rule.chain().to_owned(), rule.to_string()));
        let other: Vec<u8> = message
            .body
            .iter()
            .map(|byte| match byte {
                b'p' => b'q',
                other => *other,
            })
            .collect();
        assert_eq!(parse_rule(&other, TABLE), None);
    }
}

/// What `nft --debug=netlink` shows of the same rules: data of `cmp`, `bitwise` and verdicts.
#[test]
#[cfg(target_endian = "little")]
fn guards_are_the_comparisons_that_the_kernel_knows() {
    let bytes = |packets: Packets, pass: bool| {
        let mut guard = Guard::stop(Bound::Elsewhere, &[packets]);
        guard.pass = pass;
        guard_expressions(&guard)
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
