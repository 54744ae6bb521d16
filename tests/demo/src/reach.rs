//! Find out with packets which pods reach each other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

use agent_common::addr::MacAddr;
use anyhow::Result;
use testbed::frame::{Arp, Marker, ethernet, marker, udp4, udp6};
use testbed::tap::contains;
use testbed::{Port, Tap, traffic};

use super::report::Report;
use super::stage::{NODE_V4, NODE_V6, Stage};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// The node, as a destination.
const NODE: &str = "node";
/// UDP ports without a listener.
const PORTS: (u16, u16) = (5000, 9);
/// How long what must arrive may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Further wait for a packet that must not arrive.
///
/// Frames between veths are delivered before `send` returns or soon after.
const GRACE: Duration = Duration::from_millis(200);

/// Ways to reach somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Arp,
    Ipv4,
    Ipv6,
    Broadcast,
}

const WAYS: [Way; 4] = [Way::Arp, Way::Ipv4, Way::Ipv6, Way::Broadcast];

/// One line of the table: from these networks to those, and what must be.
struct Row {
    name: &'static str,
    from: &'static [&'static str],
    to: &'static [&'static str],
    must: [bool; 4],
}

const fn row(
    name: &'static str,
    from: &'static [&'static str],
    to: &'static [&'static str],
    must: [bool; 4],
) -> Row {
    Row {
        name,
        from,
        to,
        must,
    }
}

const NEVER: [bool; 4] = [false; 4];

const ROWS: [Row; 8] = [
    row("blue -> blue", &["blue"], &["blue"], [true; 4]),
    row("red -> red", &["red"], &["red"], [true; 4]),
    row(
        "green -> green",
        &["green"],
        &["green"],
        [false, true, true, false],
    ),
    row("blue -> red", &["blue"], &["red"], NEVER),
    row("red -> blue", &["red"], &["blue"], NEVER),
    row("blue, red -> green", &["blue", "red"], &["green"], NEVER),
    row("green -> blue, red", &["green"], &["blue", "red"], NEVER),
    row(
        "any pod -> the node",
        &["blue", "red", "green"],
        &[NODE],
        NEVER,
    ),
];

/// One packet that was sent.
struct Try {
    from: usize,
    to: Option<usize>,
    way: Way,
    marker: Marker,
}

/// Everybody's eyes.
struct Eyes {
    pods: Vec<(Tap, Vec<Vec<u8>>)>,
    node: Vec<Tap>,
    at_node: Vec<Vec<u8>>,
}

impl Eyes {
    fn open(stage: &Stage) -> Self {
        let pods = stage.pods().iter();
        Self {
            pods: pods.map(|pod| (pod.port.tap(), Vec::new())).collect(),
            node: [IPV4, ARP, IPV6]
                .map(|ether_type| Tap::stack(stage.node(), ether_type))
                .into(),
            at_node: Vec::new(),
        }
    }

    fn look(&mut self) {
        for (tap, seen) in &mut self.pods {
            seen.extend(std::iter::from_fn(|| tap.next()));
        }
        for tap in &self.node {
            self.at_node.extend(std::iter::from_fn(|| tap.next()));
        }
    }

    /// Reports whether the packet came through.
    ///
    /// It was seen where it should go to, or for ARP, its sender has learnt the MAC address.
    fn arrived(&self, ports: &[&Port], attempt: &Try) -> bool {
        let Some(to) = attempt.to else {
            return self
                .at_node
                .iter()
                .any(|frame| contains(frame, &attempt.marker));
        };
        let (_, seen) = &self.pods[to];
        let (_, answers) = &self.pods[attempt.from];
        let learnt = || {
            let (ip, mac) = (ports[to].v4(), ports[to].mac);
            answers
                .iter()
                .any(|frame| testbed::frame::is_arp_reply_for(frame, ip) && frame[22..28] == mac.0)
        };
        seen.iter().any(|frame| contains(frame, &attempt.marker))
            || (attempt.way == Way::Arp && learnt())
    }
}

/// Sends everything from everybody to everybody, then prints the table.
pub(crate) fn show(stage: &Stage, report: &mut Report) -> Result<()> {
    report.heading("Who reaches whom, from every pod to every other one, by real packets");
    let ports: Vec<&Port> = stage.pods().iter().map(|pod| &pod.port).collect();
    let mut eyes = Eyes::open(stage);
    let mut tries = Vec::new();
    for from in 0..ports.len() {
        stage.interrupt().check()?;
        for way in WAYS {
            for to in (0..ports.len()).filter(|to| *to != from) {
                let marker = send(
                    way,
                    &eyes.pods[from].0,
                    ports[from],
                    &Target::pod(ports[to]),
                );
                tries.push(Try {
                    from,
                    to: Some(to),
                    way,
                    marker,
                });
            }
            let node = Target::node(stage, ports[from]);
            let marker = send(way, &eyes.pods[from].0, ports[from], &node);
            tries.push(Try {
                from,
                to: None,
                way,
                marker,
            });
        }
    }
    let must = |attempt: &Try| {
        let row = ROWS.iter().find(|row| row.holds(&ports, attempt));
        row.is_some_and(|row| row.must[attempt.way as usize])
    };
    stage.interrupt().wait(PATIENCE, || {
        eyes.look();
        Ok(tries
            .iter()
            .all(|attempt| !must(attempt) || eyes.arrived(&ports, attempt)))
    })?;
    thread::sleep(GRACE);
    eyes.look();

    report.note(format!(
        "{:<21}{:<11}{:<11}{:<11}{}",
        "", "ARP", "IPv4", "IPv6", "broadcast"
    ));
    for row in &ROWS {
        print(row, &ports, &tries, &eyes, report);
    }
    report.note(format!(
        "{} packets; red has the same subnets as blue",
        tries.len()
    ));
    report.note("green is L3: routed by address, ARP answers with the virtual gateway's MAC");
    Ok(())
}

fn print(row: &Row, ports: &[&Port], tries: &[Try], eyes: &Eyes, report: &mut Report) {
    let mut counts: BTreeMap<Way, (usize, usize)> = BTreeMap::new();
    for attempt in tries.iter().filter(|attempt| row.holds(ports, attempt)) {
        let (arrived, sent) = counts.entry(attempt.way).or_default();
        *arrived += usize::from(eyes.arrived(ports, attempt));
        *sent += 1;
    }
    let mut holds = true;
    let mut line = format!("{:<21}", row.name);
    for (way, must) in WAYS.into_iter().zip(row.must) {
        let (arrived, sent) = counts.get(&way).copied().unwrap_or_default();
        holds &= sent > 0 && arrived == if must { sent } else { 0 };
        let word = if arrived == 0 { "no" } else { "yes" };
        line.push_str(&format!("{:<11}", format!("{word} {arrived}/{sent}")));
    }
    report.check(holds, line.trim_end());
}

impl Row {
    fn holds(&self, ports: &[&Port], attempt: &Try) -> bool {
        let to = attempt.to.map_or(NODE, |to| ports[to].network.as_str());
        self.from.contains(&ports[attempt.from].network.as_str()) && self.to.contains(&to)
    }
}

/// Where a packet goes.
struct Target {
    mac: MacAddr,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Target {
    fn pod(port: &Port) -> Self {
        Self {
            mac: port.mac,
            v4: port.v4(),
            v6: port.v6(),
        }
    }

    /// The node's addresses, at the MAC address of the interface nearest to the pod.
    fn node(stage: &Stage, near: &Port) -> Self {
        let ifindex = near.host_ifindex();
        let links = stage.node_links().unwrap_or_default();
        let link = links.into_iter().find(|link| link.ifindex == ifindex);
        let mac = link.and_then(|link| link.mac).map(MacAddr);
        Self {
            mac: mac.unwrap_or(MacAddr::BROADCAST),
            v4: NODE_V4.into(),
            v6: NODE_V6.into(),
        }
    }
}

/// Sends by every means a root pod has: its IP stack, or a raw frame to the MAC.
fn send(way: Way, tap: &Tap, from: &Port, to: &Target) -> Marker {
    let mark = marker();
    let frame =
        |to: MacAddr, ether_type, packet: Vec<u8>| ethernet(to, from.mac, ether_type, &packet);
    match way {
        Way::Arp => {
            let request = Arp::request((from.mac, from.v4()), to.v4);
            tap.send(&request.frame(MacAddr::BROADCAST, from.mac, &mark));
            tap.send(&request.frame(to.mac, from.mac, &mark));
        }
        Way::Ipv4 => {
            by_stack(from, from.v4().into(), to.v4.into(), &mark);
            tap.send(&frame(to.mac, IPV4, udp4(from.v4(), to.v4, PORTS, &mark)));
        }
        Way::Ipv6 => {
            by_stack(from, from.v6().into(), to.v6.into(), &mark);
            tap.send(&frame(to.mac, IPV6, udp6(from.v6(), to.v6, PORTS, &mark)));
        }
        Way::Broadcast => {
            let packet = udp4(from.v4(), Ipv4Addr::BROADCAST, PORTS, &mark);
            tap.send(&frame(MacAddr::BROADCAST, IPV4, packet));
        }
    }
    mark
}

fn by_stack(from: &Port, source: IpAddr, to: IpAddr, mark: &Marker) {
    // A pod that has no route to there cannot send, and that is an answer too.
    let _ = traffic::shout(from, source, (to, PORTS.1).into(), mark);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_networks_is_in_exactly_one_row() {
        let networks = ["blue", "red", "green"];
        for from in networks {
            for to in networks.into_iter().chain([NODE]) {
                let rows = ROWS.iter();
                let count = rows
                    .filter(|row| row.from.contains(&from) && row.to.contains(&to))
                    .count();
                assert_eq!(count, 1, "{from} -> {to}");
            }
        }
    }
}
