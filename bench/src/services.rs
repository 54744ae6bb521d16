//! Measure a packet to a Service, and by rules of kube-proxy's shape.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use netdev::Route;
use testbed::host::connection;
use testbed::{Network, Node, Setup};

use crate::case::{Bench, Known, ROUNDS, Run, agent_of, millis, names, wait_promoted};
use crate::peers::{Bed, Peer, podnet_plugin};
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side, load};
use crate::series::{MEDIAN, P99, percentile};
use crate::traffic::order::{Exchange, SERVICE_PORT};
use crate::turns::{self, Traffic, attach, first_of_row};
use crate::{cpu, interrupt};

mod api;

pub(crate) use self::api::CASE as API;

/// Cost of Services.
pub(crate) const CASE: Known = Known {
    name: "services",
    title: "Services of a network",
    about: "Pairs of pods on L3 networks of one node: by the other pod's address on two networks without a Service, of which the second \
            one shows what the pods alone differ by, and on one with 10,000; by the address of a Service, where there are 10, 1,000 and \
            10,000, each with ten endpoints for TCP and UDP, of which the one that is measured has one. And pods of the reference plugin ptp, \
            with as many Services by rules of iptables and nftables of the shape that kube-proxy writes: \
            found one after the other or by a map, with a chain for the Service and one for its endpoint. \
            The Service that is measured is in the middle. One thread sends and receives on \
            one processor, 5 ms by each pair in turn. Connections are opened, a byte goes each way, and they are reset. \
            In force is the time from the write of all Services to the first packet of the last one; a change is one of an EndpointSlice, from its write \
            to the first of three datagrams in a row at the endpoint that it names.",
    run: Run::Alone(run),
};

/// Way from one pod of a pair to the other.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Its address, where the network has so many Services.
    Address(usize),
    /// One of so many Services of podnet.
    Service(usize),
    /// One of so many Services by rules of iptables.
    Iptables(usize),
    /// The same of nftables.
    Nftables(usize),
}

const ADDRESS: &str = "pod address";

const PAIRS: [(&str, Way); 12] = [
    (ADDRESS, Way::Address(0)),
    ("pod address, once more", Way::Address(0)),
    ("pod address beside 10,000", Way::Address(10_000)),
    ("Service, 10", Way::Service(10)),
    ("Service, 1,000", Way::Service(1_000)),
    (MOST, Way::Service(10_000)),
    ("iptables, 10", Way::Iptables(10)),
    ("iptables, 1,000", Way::Iptables(1_000)),
    ("iptables, 10,000", Way::Iptables(10_000)),
    ("nftables, 10", Way::Nftables(10)),
    ("nftables, 1,000", Way::Nftables(1_000)),
    ("nftables, 10,000", Way::Nftables(10_000)),
];
const MOST: &str = "Service, 10,000";

/// Measured traffic.
const TRAFFIC: [Traffic; 4] = [
    ("UDP 64 B, 1 CPU", "ns/packet", None, Exchange::Datagrams),
    ("UDP round trip, 1 CPU", "ns", None, Exchange::Trip),
    // A bit a nanosecond is a Gbit/s.
    ("TCP stream, 1 CPU", "Gbit/s", Some(8.0), Exchange::Stream),
    (
        "TCP connections, 1 CPU",
        "per second",
        Some(1e9),
        Exchange::Connection,
    ),
];

/// Endpoints of each Service but the one that is measured.
const ENDPOINTS: usize = 10;
/// Services in one file.
const IN_FILE: usize = 500;
/// How long Services may take to be in force.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a datagram may take.
const ARRIVAL: Duration = Duration::from_millis(2);
/// Datagrams in a row that say that a change is in force.
const ROW: usize = 3;
/// Time in which agent and kernel do what rules that are new leave to do.
const REST: Duration = Duration::from_secs(5);

/// The address of a Service.
fn service(number: usize) -> Ipv4Addr {
    let [.., c, d] = u32::try_from(number + 1).unwrap_or(0).to_be_bytes();
    Ipv4Addr::new(10, 96, c, d)
}

/// Services of a network with a slice each; the middle one has this endpoint.
fn manifest(
    network: &str,
    numbers: std::ops::Range<usize>,
    (middle, ip): (usize, IpAddr),
) -> String {
    let mut text = String::new();
    for number in numbers {
        let address = service(number);
        let endpoints = if number == middle {
            format!("{{addresses: [\"{ip}\"]}}")
        } else {
            let each = (0..ENDPOINTS).map(|at| {
                let host = (number * ENDPOINTS + at) % 60_000 + 4_000;
                format!("{{addresses: [\"10.20.{}.{}\"]}}", host >> 8, host & 0xff)
            });
            each.collect::<Vec<_>>().join(", ")
        };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Service\n\
             metadata: {{name: s{number}, namespace: {network}, labels: {{podnet.dev/network: {network}}}}}\n\
             spec: {{clusterIPs: [\"{address}\"], ports: [{{name: t, port: {SERVICE_PORT}}}, {{name: u, port: {SERVICE_PORT}, protocol: UDP}}]}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: s{number}, namespace: {network}, labels: {{podnet.dev/network: {network}, kubernetes.io/service-name: s{number}}}}}\n\
             addressType: IPv4\nports: [{{name: t, port: {SERVICE_PORT}}}, {{name: u, port: {SERVICE_PORT}, protocol: UDP}}]\n\
             endpoints: [{endpoints}]\n"
        );
    }
    text
}

/// Rules of kube-proxy's shape in mode iptables, for `iptables-restore`.
///
/// Services that are not measured share a chain, which they never come to: a chain for each takes the program minutes.
fn iptables(count: usize, ip: IpAddr) -> String {
    let mut chains =
        String::from("*nat\n:PODNET-SERVICES - [0:0]\n:PODNET-MARK - [0:0]\n:SVC-other - [0:0]\n");
    let mut rules = String::from(
        "-A PREROUTING -j PODNET-SERVICES\n-A OUTPUT -j PODNET-SERVICES\n-A PODNET-MARK -j MARK --or-mark 0x4000\n\
         -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE\n",
    );
    for number in 0..count {
        let address = service(number);
        let is_measured = number == count / 2;
        for protocol in ["tcp", "udp"] {
            let of = format!("-d {address}/32 -p {protocol} -m {protocol} --dport {SERVICE_PORT}");
            let chain = if is_measured { protocol } else { "other" };
            // Writing to a string does not fail.
            let _ = writeln!(rules, "-A PODNET-SERVICES {of} -j SVC-{chain}");
            if is_measured {
                let _ = writeln!(chains, ":SVC-{protocol} - [0:0]\n:SEP-{protocol} - [0:0]");
                let _ = writeln!(
                    rules,
                    "-A SVC-{protocol} ! -s 10.50.0.0/24 {of} -j PODNET-MARK\n\
                     -A SVC-{protocol} -j SEP-{protocol}\n\
                     -A SEP-{protocol} -s {ip}/32 -j PODNET-MARK\n\
                     -A SEP-{protocol} -p {protocol} -m {protocol} -j DNAT --to-destination {ip}:{SERVICE_PORT}"
                );
            }
        }
    }
    chains + &rules + "COMMIT\n"
}

/// The same in mode nftables.
fn nftables(count: usize, ip: IpAddr) -> String {
    let mut text = String::from(
        "table ip services {\nchain marking { meta mark set meta mark or 0x4000; }\nchain other { return; }\n\
         chain leaving { type nat hook postrouting priority srcnat; meta mark & 0x4000 == 0x4000 masquerade; }\n",
    );
    let mut map = Vec::new();
    for number in 0..count {
        let address = service(number);
        for protocol in ["tcp", "udp"] {
            let chain = match number == count / 2 {
                true => format!("svc_{protocol}"),
                false => "other".to_owned(),
            };
            map.push(format!(
                "{address} . {protocol} . {SERVICE_PORT} : goto {chain}"
            ));
        }
    }
    let address = service(count / 2);
    for protocol in ["tcp", "udp"] {
        let _ = writeln!(
            text,
            "chain sep_{protocol} {{ ip saddr {ip} jump marking; meta l4proto {protocol} dnat to {ip}:{SERVICE_PORT}; }}\n\
             chain svc_{protocol} {{ ip daddr {address} {protocol} dport {SERVICE_PORT} ip saddr != 10.50.0.0/24 jump marking; \
             numgen random mod 1 vmap {{ 0 : goto sep_{protocol} }}; }}"
        );
    }
    let _ = writeln!(
        text,
        "map ips {{ type ipv4_addr . inet_proto . inet_service : verdict; elements = {{ {} }} }}",
        map.join(", ")
    );
    for (hook, priority) in [("prerouting", "dstnat"), ("output", "-100")] {
        let _ = writeln!(
            text,
            "chain {hook} {{ type nat hook {hook} priority {priority}; ip daddr . meta l4proto . th dport vmap @ips; }}"
        );
    }
    text + "}\n"
}

/// Two pods, the address by which the first one sends, and what is there for them.
struct Pair {
    sides: [Side; 2],
    service: Option<IpAddr>,
    // They are gone with these.
    _pods: [Sandbox; 2],
    _bed: Option<Bed>,
}

impl Pair {
    fn start(bench: &Bench<'_>, node: &Node, number: usize, way: Way) -> Result<Self> {
        type Rules = fn(usize, IpAddr) -> String;
        let name = format!("services-{number}");
        let (count, rules, program): (usize, Rules, (&str, &[&str])) = match way {
            Way::Address(_) | Way::Service(_) => {
                let plugin = podnet_plugin("podnet", node, &network(number));
                let (sides, pods) = attach(bench.dir, &name, &plugin)?;
                return Ok(Self {
                    sides,
                    service: None,
                    _pods: pods,
                    _bed: None,
                });
            }
            Way::Iptables(count) => (count, iptables, ("iptables-restore", &["--noflush"])),
            Way::Nftables(count) => (count, nftables, ("nft", &["-f", "-"])),
        };
        let bed = Bed::make(
            Peer::Ptp,
            &format!("ptp-{number}"),
            bench.dir,
            &["10.50.0.0/24"],
        )?;
        let (sides, pods) = attach(bench.dir, &name, &bed.plugin)?;
        pods.iter().try_for_each(lead_to_services)?;
        let count = size(bench, count);
        load(bed.host.netns(), program, &rules(count, sides[1].ip))?;
        Ok(Self {
            sides,
            service: Some(service(count / 2).into()),
            _pods: pods,
            _bed: Some(bed),
        })
    }

    /// Waits until a datagram arrives by the way that is measured.
    fn wait(&self, who: &str) -> Result<()> {
        let begun = Instant::now();
        let [a, b] = &self.sides;
        let to = self.service.unwrap_or(b.ip);
        let there = b.netns.run_in(|| UdpSocket::bind((b.ip, SERVICE_PORT)))??;
        there.set_read_timeout(Some(ARRIVAL))?;
        loop {
            interrupt::check()?;
            let here = a.netns.run_in(|| UdpSocket::bind((a.ip, 0)))??;
            // A Service that is not there yet refuses.
            let _ = here.send_to(b"probe", (to, SERVICE_PORT));
            if there.recv(&mut [0; 8]).is_ok() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                bail!("no datagram arrives by {who} within {PATIENCE:?}");
            }
        }
    }
}

/// Gives a pod of the plugin ptp a route to Services.
fn lead_to_services(pod: &Sandbox) -> Result<()> {
    let mut netlink = connection(pod.netns());
    let link = netlink.by_name("net1")?.context("the pod has net1")?;
    let gateway = Ipv4Addr::new(10, 50, 0, 1).into();
    let services = Ipv4Addr::new(10, 96, 0, 0).into();
    netlink.add_route(&Route::new(services, 12, Some(gateway), link.ifindex))?;
    Ok(())
}

/// As many Services as a run of this length has.
fn size(bench: &Bench<'_>, count: usize) -> usize {
    bench.size(count, count / 10 + 1)
}

fn network(number: usize) -> String {
    format!("n{number}")
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&PAIRS.map(|(who, _)| who));
    bench.progress.stage("setting up");
    let mut setup = Setup::empty();
    for (number, (_, way)) in PAIRS.into_iter().enumerate() {
        let own = network(number);
        let l3 = Network::l3(&own, &["10.20.0.0/16"]);
        setup = match way {
            Way::Address(0) => setup.network(&l3),
            Way::Address(_) | Way::Service(_) => setup.network(&l3.services(&["10.96.0.0/12"])),
            Way::Iptables(_) | Way::Nftables(_) => setup,
        };
    }
    let node = Node::start(setup);
    let mut pairs = Vec::new();
    for (number, (_, way)) in PAIRS.into_iter().enumerate() {
        interrupt::check()?;
        pairs.push(Pair::start(bench, &node, number, way)?);
    }
    serve(bench, case, &node, &mut pairs)?;
    wait_promoted(&node)?;
    for (pair, (who, _)) in pairs.iter().zip(PAIRS) {
        pair.wait(who)?;
    }
    std::thread::sleep(bench.size(REST, REST / 10));
    let ways: Vec<turns::Way<'_>> = pairs
        .iter()
        .zip(PAIRS)
        .map(|(pair, (who, _))| (who, pair.sides.each_ref(), pair.service))
        .collect();
    turns::measure(bench, case, &ways, &TRAFFIC, |_, _, _, _| {})?;
    change(bench, case, &node, &pairs)
}

/// Writes the Services of podnet's networks, and waits until they are in force.
fn serve(bench: &Bench<'_>, case: &mut Case, node: &Node, pairs: &mut [Pair]) -> Result<()> {
    for (number, (who, way)) in PAIRS.into_iter().enumerate() {
        let (Way::Address(count) | Way::Service(count)) = way else {
            continue;
        };
        if count == 0 {
            continue;
        }
        let (pair, own) = (&mut pairs[number], network(number));
        let count = size(bench, count);
        let middle = (count / 2, pair.sides[1].ip);
        if matches!(way, Way::Service(_)) {
            pair.service = Some(service(middle.0).into());
        }
        let begun = Instant::now();
        for first in (0..count).step_by(IN_FILE) {
            let range = first..count.min(first + IN_FILE);
            let file = format!("{own}-{first}.yaml");
            node.write_manifest(&file, &manifest(&own, range, middle));
        }
        if matches!(way, Way::Service(_)) {
            pair.wait(who)?;
            case.measure("", "In force", "ms", Better::Less)
                .put(who, 0, millis(begun.elapsed()));
        }
    }
    case.measure(
        "",
        "Agent's memory (RSS), all networks",
        "MiB",
        Better::Less,
    )
    .put(MOST, 0, cpu::memory_of(agent_of(node)?)?);
    Ok(())
}

/// Changes the pod that a slice names, and waits until datagrams go there.
fn change(bench: &Bench<'_>, case: &mut Case, node: &Node, pairs: &[Pair]) -> Result<()> {
    bench.progress.stage("slices");
    let (rounds, changes) = (bench.rounds(ROUNDS), bench.size(20, 2));
    bench.progress.expect(rounds);
    let (number, (who, _)) = PAIRS
        .into_iter()
        .enumerate()
        .find(|(_, (who, _))| *who == MOST)
        .context("a pair")?;
    let (pair, own) = (&pairs[number], network(number));
    let count = size(bench, 10_000);
    let middle = count / 2;
    let first = middle / IN_FILE * IN_FILE;
    let range = first..count.min(first + IN_FILE);
    let file = format!("{own}-{first}.yaml");
    // The first pod is a client, and its own endpoint in turn.
    let [a, b] = &pair.sides;
    let to = pair.service.context("a Service")?;
    let servers = [server(a)?, server(b)?];
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut times = Vec::new();
        for change in 0..changes {
            interrupt::check()?;
            let ip = [a.ip, b.ip][change % 2];
            let text = manifest(&own, range.clone(), (middle, ip));
            let begun = Instant::now();
            node.write_manifest(&file, &text);
            let arrived = arrives(
                a,
                (to, &servers[change % 2], &servers[1 - change % 2]),
                begun,
            )?;
            times.push(millis(arrived));
        }
        times.sort_by(f64::total_cmp);
        case.measure("", "Slice to packet, p50", "ms", Better::Less)
            .put(who, round, percentile(&times, MEDIAN));
        all.extend(times);
        bench.progress.step();
    }
    all.sort_by(f64::total_cmp);
    case.measure("", "Slice to packet, p99 of all", "ms", Better::Less)
        .put(who, 0, percentile(&all, P99));
    Ok(())
}

/// A server that does not wait for datagrams.
fn server(side: &Side) -> Result<UdpSocket> {
    let at = SocketAddr::new(side.ip, SERVICE_PORT);
    let socket = side.netns.run_in(|| UdpSocket::bind(at))??;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Time from `begun` until datagrams arrive at one server and not at the other.
fn arrives(
    client: &Side,
    (to, wanted, other): (IpAddr, &UdpSocket, &UdpSocket),
    begun: Instant,
) -> Result<Duration> {
    let mut buffer = [0; 8];
    first_of_row(begun, ROW, ("a slice", PATIENCE), || {
        let here = client.netns.run_in(|| UdpSocket::bind((client.ip, 0)))??;
        let _ = here.send_to(b"packet", (to, SERVICE_PORT));
        std::thread::sleep(Duration::from_micros(300));
        let mut came = false;
        while wanted.recv(&mut buffer).is_ok() {
            came = true;
        }
        while other.recv(&mut buffer).is_ok() {
            came = false;
        }
        Ok(came)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn services_have_addresses_of_their_own() {
        let all: BTreeSet<Ipv4Addr> = (0..10_000).map(service).collect();
        assert_eq!(all.len(), 10_000);
    }
}
