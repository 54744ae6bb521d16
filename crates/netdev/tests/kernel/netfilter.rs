//! The table of nf_tables, as the kernel has it.

use netdev::{
    Bound, Error, Guard, LinkName, Masquerade, Netfilter, Netns, Packets, PortAt, PortProtocol,
    Ruleset, TableWrite,
};
use rustix::io::Errno;

use crate::{Scene, ip};

fn open(netns: &Netns) -> Netfilter {
    netns
        .run_in(Netfilter::open)
        .expect("entered")
        .expect("a socket")
}

fn wanted() -> Masquerade {
    Masquerade {
        from: vec![(ip("10.244.1.0"), 24), (ip("fd00:244:1::"), 64)],
        inside: vec![(ip("10.244.0.0"), 16), (ip("fd00:244::"), 48)],
        fixed: Vec::new(),
    }
}

/// True when this kernel can masquerade; says so when it cannot.
fn can(netfilter: &mut Netfilter) -> bool {
    match netfilter.masquerade(&wanted()) {
        Ok(_) => true,
        Err(Error::Netfilter { source, .. })
            if matches!(source.errno(), Errno::NOENT | Errno::OPNOTSUPP) =>
        {
            println!("SKIP: needs nf_tables with masquerading in this kernel");
            false
        }
        Err(error) => unreachable!("{error:?}"),
    }
}

#[test]
fn a_table_is_as_it_was_written_and_is_replaced_as_a_whole() {
    let Some(scene) = Scene::set() else { return };
    let mut netfilter = open(&scene.node);
    assert!(!netfilter.is_masquerading(&wanted()).expect("a look"));
    if !can(&mut netfilter) {
        return;
    }
    assert!(netfilter.is_masquerading(&wanted()).expect("a look"));
    // Twice is once.
    let again = netfilter.masquerade(&wanted()).expect("written");
    assert_eq!(again, TableWrite::Replaced);
    assert!(netfilter.is_masquerading(&wanted()).expect("a look"));
    let other = Masquerade {
        from: vec![(ip("10.244.2.0"), 25)],
        ..wanted()
    };
    assert!(!netfilter.is_masquerading(&other).expect("a look"));
    let ruleset = Ruleset::from(&other);
    let mut ensure = || netfilter.ensure(&ruleset).expect("written");
    assert_eq!(ensure(), TableWrite::Replaced);
    assert_eq!(ensure(), TableWrite::Unneeded);
    assert!(netfilter.is_masquerading(&other).expect("a look"));
    assert!(!netfilter.is_masquerading(&wanted()).expect("a look"));
    assert!(netfilter.remove().expect("removed"));
    let made = netfilter.ensure(&ruleset).expect("written");
    assert_eq!(made, TableWrite::Made, "after another program removed it");
}

#[test]
fn a_table_is_removed_once_and_one_of_another_namespace_is_not_touched() {
    let Some(scene) = Scene::set() else { return };
    let (mut node, mut pod) = (open(&scene.node), open(&scene.pod));
    assert!(!node.remove().expect("nothing to remove"));
    if !can(&mut node) {
        return;
    }
    assert!(!pod.remove().expect("nothing to remove"));
    assert!(!pod.is_masquerading(&wanted()).expect("a look"));
    assert!(node.is_masquerading(&wanted()).expect("a look"));
    assert!(node.remove().expect("removed"));
    assert!(!node.remove().expect("removed already"));
    assert!(!node.is_masquerading(&wanted()).expect("a look"));
}

/// Each message of a batch can be refused; only the first refusal is waited for.
#[test]
fn a_table_is_written_after_one_of_which_the_kernel_refused_all_messages() {
    /// `NFT_TABLE_MAXNAMELEN` is 256.
    const TOO_LONG: [u8; 300] = [b'p'; 300];
    let Some(scene) = Scene::set() else { return };
    let mut netfilter = open(&scene.node);
    if !can(&mut netfilter) {
        return;
    }
    let refused = Ruleset {
        table: std::str::from_utf8(const { &TOO_LONG }).expect("letters"),
        ..Ruleset::from(&wanted())
    };
    let error = netfilter
        .write(&refused)
        .expect_err("a name that is too long");
    assert!(matches!(error, Error::Netfilter { .. }), "{error:?}");
    let other = Masquerade {
        from: vec![(ip("10.244.2.0"), 25)],
        ..wanted()
    };
    netfilter.masquerade(&other).expect("written");
    assert!(netfilter.is_masquerading(&other).expect("a look"));
}

#[test]
fn a_table_with_guards_is_as_it_was_written_beside_another_one() {
    let Some(scene) = Scene::set() else { return };
    let mut netfilter = open(&scene.node);
    if !can(&mut netfilter) {
        return;
    }
    let ours = LinkName::Starts("podnet-e".to_owned());
    let from = Packets::InBy(ours.clone());
    let by = Packets::OutBy(LinkName::Is("uplink".to_owned()));
    let service = |at: &str, protocol| PortAt {
        ip: ip(at),
        protocol,
        port: 53,
    };
    let rules = Ruleset {
        table: "podnet-egress",
        masquerade: Some(Masquerade {
            fixed: vec![
                (
                    service("10.96.0.10", PortProtocol::Udp),
                    ip("169.254.128.1"),
                ),
                (service("fd96::a", PortProtocol::Tcp), ip("fd70::1")),
            ],
            ..wanted()
        }),
        ports: None,
        early: false,
        limits: Vec::new(),
        guards: vec![
            Guard::stop(
                Bound::Elsewhere,
                &[from.clone(), Packets::NotFrom((ip("169.254.64.0"), 18))],
            ),
            Guard::stop(Bound::Elsewhere, &[from.clone(), Packets::ToTranslated]),
            Guard::stop(Bound::Elsewhere, &[Packets::Untracked]),
            Guard::pass(
                Bound::Elsewhere,
                &[Packets::ToPort(service("10.96.0.10", PortProtocol::Tcp))],
            ),
            Guard::stop(
                Bound::Elsewhere,
                &[from.clone(), Packets::To((ip("fd00::"), 8))],
            ),
            Guard::pass(Bound::Elsewhere, &[from.clone(), by]),
            Guard::stop(
                Bound::Elsewhere,
                &[Packets::OutBy(ours), Packets::OfNoConnection],
            ),
            Guard::stop(Bound::Here, &[from]),
        ],
    };
    match netfilter.write(&rules) {
        Err(Error::Netfilter { source, .. }) if source.errno() == Errno::NOENT => {
            println!("SKIP: needs nft_ct in this kernel");
            return;
        }
        other => assert!(other.expect("written").is_change()),
    }
    assert!(netfilter.says(&rules).expect("a look"));
    assert!(netfilter.is_masquerading(&wanted()).expect("a look"));
    let mut fewer = rules.clone();
    fewer.guards.swap(0, 1);
    assert!(!netfilter.says(&fewer).expect("a look"), "the order counts");
    fewer.guards.truncate(3);
    assert!(!netfilter.says(&fewer).expect("a look"));
    assert!(netfilter.remove_table(rules.table).expect("removed"));
    assert!(!netfilter.has(rules.table).expect("a look"));
    assert!(netfilter.is_masquerading(&wanted()).expect("a look"));
}

/// A listing that a write interrupts is made again (`NLM_F_DUMP_INTR`).
#[test]
fn a_table_is_listed_while_another_program_writes() {
    const WRITES: usize = 300;
    let Some(scene) = Scene::set() else { return };
    let mut reader = open(&scene.node);
    let mut writer = open(&scene.node);
    if !can(&mut writer) {
        return;
    }
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            for _ in 0..WRITES {
                writer.masquerade(&wanted()).expect("written");
            }
        });
        while !writing.is_finished() {
            // The kernel shows both generations of a table for a moment, so that the answer may be either.
            reader.is_masquerading(&wanted()).expect("a look");
        }
        assert!(reader.is_masquerading(&wanted()).expect("a look"));
        writing.join().expect("the writer");
    });
}
