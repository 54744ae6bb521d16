//! Run the attacks of a pod that is root, and show their results.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use anyhow::{Context, Result};
use testbed::Tap;
use testbed::frame::{
    Arp, Marker, ethernet, marker, nd_option, neighbour_advertisement, router_advertisement,
    tagged, udp4, udp6,
};

use super::report::Report;
use super::stage::Stage;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
const PORTS: (u16, u16) = (5000, 9);
/// An address of network blue that no pod has.
const FREE: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 250);
/// How often each frame is sent.
const TIMES: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(5);
/// Further wait for frames that no pod must see.
const GRACE: Duration = Duration::from_millis(100);

/// A frame that must not get through.
struct Attack {
    what: &'static str,
    reason: DropReason,
    marker: Marker,
    frame: Vec<u8>,
}

/// Sends every attack and prints what was counted and seen.
pub(crate) fn show(stage: &Stage, report: &mut Report) -> Result<()> {
    let attacks = attacks(stage)?;
    report.heading("What a root pod (blue1) tries with raw frames, as `get drops` counts it");
    let me = stage.port("blue1")?;
    let tap = me.tap();
    let others = stage.pods().iter().filter(|pod| pod.name != "blue1");
    let watch: Vec<(&str, Tap)> = others
        .map(|pod| (pod.name.as_str(), pod.port.tap()))
        .chain(
            [0x0800, 0x0806, 0x86dd, VLAN].map(|kind| ("the node", Tap::stack(stage.node(), kind))),
        )
        .collect();
    for attack in &attacks {
        let before = counted(stage, attack.reason)?;
        for _ in 0..TIMES {
            tap.send(&attack.frame);
        }
        let mut dropped = 0;
        stage.interrupt().wait(PATIENCE, || {
            dropped = counted(stage, attack.reason)?.saturating_sub(before);
            Ok(dropped >= TIMES)
        })?;
        thread::sleep(GRACE);
        let seen: Vec<&str> = watch
            .iter()
            .filter(|(_, tap)| tap.count(&attack.marker) > 0)
            .map(|(name, _)| *name)
            .collect();
        let by = if seen.is_empty() {
            "nobody".to_owned()
        } else {
            seen.join(", ")
        };
        report.check(
            dropped == TIMES && seen.is_empty(),
            format!(
                "{:<38} sent {TIMES}, dropped {dropped} as {:<21} seen by {by}",
                attack.what,
                attack.reason.label()
            ),
        );
    }
    Ok(())
}

/// `packets` of `podnet-agent get drops` on blue for this reason.
fn counted(stage: &Stage, reason: DropReason) -> Result<u64> {
    let rows = stage.get("drops")?;
    let mut sum = 0;
    for row in rows {
        if row["network"] == "blue" && row["reason"] == reason.label() {
            sum += row["packets"]
                .as_u64()
                .with_context(|| format!("no packets in {row}"))?;
        }
    }
    Ok(sum)
}

fn attacks(stage: &Stage) -> Result<Vec<Attack>> {
    let (me, bob, carl) = (
        stage.port("blue1")?,
        stage.port("blue2")?,
        stage.port("blue3")?,
    );
    let all = Ipv4Addr::BROADCAST;
    let plain =
        |mark: &Marker| ethernet(bob.mac, me.mac, IPV4, &udp4(me.v4(), bob.v4(), PORTS, mark));
    let mut attacks = Vec::new();
    let mut attack = |what, reason, make: &dyn Fn(&Marker) -> Vec<u8>| {
        let marker = marker();
        let frame = make(&marker);
        attacks.push(Attack {
            what,
            reason,
            marker,
            frame,
        });
    };
    attack(
        "another pod's MAC address",
        DropReason::SpoofedMac,
        &|mark| {
            let packet = udp4(carl.v4(), bob.v4(), PORTS, mark);
            ethernet(bob.mac, carl.mac, IPV4, &packet)
        },
    );
    attack(
        "another pod's IPv4 address",
        DropReason::SpoofedIp,
        &|mark| {
            ethernet(
                bob.mac,
                me.mac,
                IPV4,
                &udp4(carl.v4(), bob.v4(), PORTS, mark),
            )
        },
    );
    attack(
        "another pod's IPv6 address",
        DropReason::SpoofedIp,
        &|mark| {
            ethernet(
                bob.mac,
                me.mac,
                IPV6,
                &udp6(carl.v6(), bob.v6(), PORTS, mark),
            )
        },
    );
    attack(
        "ARP: \"blue3's address is mine\"",
        DropReason::SpoofedArp,
        &|mark| {
            let lie = Arp {
                operation: 2,
                sender: (me.mac, carl.v4()),
                target: (bob.mac, bob.v4()),
            };
            lie.frame(bob.mac, me.mac, mark)
        },
    );
    attack(
        "ND: \"blue3's address is mine\"",
        DropReason::SpoofedNd,
        &|mark| {
            let more = nd_option(253, mark);
            let lie = neighbour_advertisement(me.v6(), bob.v6(), carl.v6(), me.mac, &more);
            ethernet(bob.mac, me.mac, IPV6, &lie)
        },
    );
    attack("a VLAN tag (802.1Q)", DropReason::VlanTag, &|mark| {
        tagged(&plain(mark), VLAN, 1002)
    });
    attack(
        "router advertisement to all",
        DropReason::RouterAdvertisement,
        &|mark| {
            let more = nd_option(253, mark);
            let packet = router_advertisement(me.mac.link_local(), ALL_NODES, &more);
            ethernet(ALL_NODES_MAC, me.mac, IPV6, &packet)
        },
    );
    attack("DHCP: an offer to all", DropReason::Dhcp, &|mark| {
        ethernet(
            MacAddr::BROADCAST,
            me.mac,
            IPV4,
            &udp4(me.v4(), all, (67, 68), mark),
        )
    });
    attack(
        "red1's MAC address as destination",
        DropReason::NoEndpoint,
        &|mark| {
            let red = stage
                .port("red1")
                .map_or(MacAddr::BROADCAST, |port| port.mac);
            // For a member's IP address it would go to that member.
            ethernet(red, me.mac, IPV4, &udp4(me.v4(), FREE, PORTS, mark))
        },
    );
    Ok(attacks)
}
