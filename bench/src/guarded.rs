//! Measure what many policies and members cost an agent.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::host::Host;
use testbed::{Fabric, Network, Node, Setup};

use crate::case::{
    BEGIN, Bench, Known, ROUNDS, Run, agent_of, millis, names, pause, put_times, slice,
    wait_promoted,
};
use crate::cpu;
use crate::interrupt;
use crate::peers::podnet_plugin;
use crate::plugin::Plugin;
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side};
use crate::series::{MEDIAN, percentile};
use crate::turns::first_of_row;

/// Attachments and changes of labels under many policies.
pub(crate) const CASE: Known = Known {
    name: "guarded",
    title: "Many policies, and many members that they select",
    about: "Two nodes of their own, on a VXLAN network with 10,000 members on 100 other nodes, as files say, which have labels of \
            300 workloads in 50 namespaces; each has 100 ports. One has 1,000 policies, each of which lets one workload reach \
            another at a port, and a block of addresses. ADD: one more pod, which policies select there, attached and detached \
            twenty times a round, from exec to exit. Label: that of a namespace with 200 of the members and all ports is \
            changed in a file, by which one pod may reach another or may not; the time from the file's place to the first \
            of datagrams in a row which all obey. They are sent one each half millisecond.",
    run: Run::Alone(run),
};

const NETWORK: &str = "n0";
const SUBNET: &str = "10.10.0.0/16";
/// Part of the subnet that members elsewhere have.
const RESERVED: &str = "10.10.128.0/17";
const ID: u32 = 2001;
const NAMESPACES: usize = 50;
const WORKLOADS: usize = 300;
/// Nodes that the members are on.
const NODES: usize = 100;
/// Interfaces in one namespace, which is cheaper than as many pods.
const PER_POD: usize = 50;
/// Calls of ADD in a round.
const CALLS: usize = 20;
const P99: u32 = 99_000;
/// Datagrams in a row that have to obey.
const ROW: usize = 50;
const BETWEEN: Duration = Duration::from_micros(500);
/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much there is.
#[derive(Debug, Clone, Copy)]
struct Size {
    members: usize,
    policies: usize,
    ports: usize,
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let size = bench.size(
        Size {
            members: 10_000,
            policies: 1_000,
            ports: 100,
        },
        Size {
            members: 200,
            policies: 20,
            ports: 6,
        },
    );
    let none = Size {
        policies: 0,
        ..size
    };
    let grounds = [("no policy", none), ("1,000 policies", size)];
    case.subjects = names(&grounds.map(|(who, _)| who));
    let mut beds = Vec::new();
    for (number, (who, size)) in (0_u8..).zip(grounds) {
        bench.progress.stage(&format!("starting {who}"));
        beds.push(Bed::start(bench, number, who, size)?);
    }
    for bed in &beds {
        case.measure("", "Agent's memory (RSS)", "MiB", Better::Less)
            .put(bed.who, 0, cpu::memory_of(agent_of(&bed.node)?)?);
    }
    attach(bench, &beds, case)?;
    let [_, guarded] = &*beds else {
        bail!("there are two nodes");
    };
    guarded.change(bench, case)?;
    bench.progress.say("taking it down");
    Ok(())
}

/// One more pod, and away with it.
fn attach(bench: &Bench<'_>, beds: &[Bed], case: &mut Case) -> Result<()> {
    bench.progress.stage("ADD");
    let (rounds, calls) = (bench.rounds(ROUNDS), bench.size(CALLS, 3));
    bench.progress.expect(rounds * beds.len());
    for round in 0..rounds {
        for turn in 0..beds.len() {
            let bed = &beds[(turn + round) % beds.len()];
            let plugin = bed.plugin("a0");
            let mut times = Vec::new();
            for _ in 0..calls {
                interrupt::check()?;
                pause();
                times.push(millis(plugin.call("ADD", Some(&bed.more))?.0));
                pause();
                plugin.call("DEL", Some(&bed.more))?;
            }
            put_times(case, "ADD", bed.who, round, &mut times);
            bench.progress.step();
        }
    }
    Ok(())
}

/// A node, with two pods that may reach each other or may not.
struct Bed {
    who: &'static str,
    // Before the node: namespaces take their links along, all at once.
    _pods: Vec<Sandbox>,
    more: Sandbox,
    database: Side,
    client: Side,
    node: Node,
    /// The other end of its link.
    _other: Host,
    _files: TempDir,
}

impl Bed {
    fn start(bench: &Bench<'_>, number: u8, who: &'static str, size: Size) -> Result<Self> {
        let files = tempfile::tempdir()?;
        members(files.path(), size.members)?;
        let shared = files.path().to_str().context("a path in UTF-8")?;
        let vtep = Fabric::v4_of_pair(1).to_string();
        let network = Network::l3(NETWORK, &[SUBNET]).exclude(&[RESERVED]).id(ID);
        let setup = Setup::empty()
            .args(&["--vtep", &vtep, "--endpoints", shared])
            .network(&network.vxlan())
            .file("namespaces.yaml", &namespaces("blue"))
            .file("policies.yaml", &policies(size.policies));
        let [host, other] = Fabric::pair();
        let node = Node::start_on(setup, host);
        let mut pods = Vec::new();
        for place in 0..size.ports {
            interrupt::check()?;
            if place % PER_POD == 0 {
                pods.push(Sandbox::create(
                    bench.dir,
                    &format!("guarded-{number}-{place}"),
                )?);
            }
            let pod = pods.last().context("a pod was just made")?;
            let workload = format!("a{}", place * NAMESPACES % WORKLOADS);
            labelled(&node, who, &workload).call_as("ADD", pod, &format!("net{place}"))?;
        }
        let mut side = |app: &str| -> Result<Side> {
            let pod = Sandbox::create(bench.dir, &format!("guarded-{number}-{app}"))?;
            let (_, result) = labelled(&node, who, app).call("ADD", Some(&pod))?;
            let side = Side::of_result(&pod, &result)?;
            pods.push(pod);
            Ok(side)
        };
        let (database, client) = (side("db")?, side("client")?);
        wait_promoted(&node)?;
        Ok(Self {
            who,
            _pods: pods,
            more: Sandbox::create(bench.dir, &format!("guarded-{number}-more"))?,
            database,
            client,
            node,
            _other: other,
            _files: files,
        })
    }

    fn plugin(&self, app: &str) -> Plugin {
        labelled(&self.node, self.who, app)
    }

    /// Changes the label of the client's namespace, and waits until its datagrams obey.
    fn change(&self, bench: &Bench<'_>, case: &mut Case) -> Result<()> {
        bench.progress.stage("labels");
        let (rounds, changes) = (bench.rounds(ROUNDS), bench.size(CALLS, 2));
        bench.progress.expect(rounds);
        let socket = |side: &Side, port: u16| -> Result<UdpSocket> {
            let at = SocketAddr::new(side.ip, port);
            Ok(side.netns.run_in(|| UdpSocket::bind(at))??)
        };
        let (there, here) = (socket(&self.database, 80)?, socket(&self.client, 0)?);
        there.set_nonblocking(true)?;
        here.connect((self.database.ip, 80))?;
        let mut all = Vec::new();
        for round in 0..rounds {
            let mut times = Vec::new();
            for change in 0..changes {
                interrupt::check()?;
                let may = change % 2 == 0;
                let team = if may { "red" } else { "blue" };
                let file = namespaces(team);
                let begun = Instant::now();
                self.node.write_manifest("namespaces.yaml", &file);
                times.push(millis(obeyed(&here, &there, begun, may)?));
            }
            times.sort_by(f64::total_cmp);
            case.measure("", "Label to packet, p50", "ms", Better::Less)
                .put(self.who, round, percentile(&times, MEDIAN));
            all.extend(times);
            bench.progress.step();
        }
        all.sort_by(f64::total_cmp);
        case.measure("", "Label to packet, p99 of all", "ms", Better::Less)
            .put(self.who, 0, percentile(&all, P99));
        Ok(())
    }
}

/// The time until datagrams obey, from `begun` on.
fn obeyed(here: &UdpSocket, there: &UdpSocket, begun: Instant, may: bool) -> Result<Duration> {
    let mut buffer = [0; 8];
    // Those on the way from before.
    while there.recv(&mut buffer).is_ok() {}
    first_of_row(begun, ROW, ("a label", PATIENCE), || {
        here.send(b"packet").context("a datagram")?;
        std::thread::sleep(BETWEEN);
        let mut arrived = false;
        while there.recv(&mut buffer).is_ok() {
            arrived = true;
        }
        Ok(arrived == may)
    })
}

/// The plugin for a pod of this workload.
fn labelled(node: &Node, who: &str, app: &str) -> Plugin {
    let labels: Value = json!({"app": app});
    podnet_plugin(who, node, NETWORK).with("labels", &labels)
}

/// Namespaces; ports of the node are in the first one, which has this label.
fn namespaces(team: &str) -> String {
    let mut text = String::new();
    for number in 0..NAMESPACES {
        let team = if number == 0 { team } else { "blue" };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {}, labels: {{team: {team}}}}}\n",
            namespace(number)
        );
    }
    text
}

fn namespace(number: usize) -> String {
    match number % NAMESPACES {
        0 => "default".to_owned(),
        number => format!("ns{number}"),
    }
}

/// So many policies.
///
/// The last one goes by the label of the first namespace.
fn policies(count: usize) -> String {
    let mut text = String::new();
    let mut add = |name: &str, number: usize, spec: &str| {
        let _ = write!(
            text,
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: {}, \
             annotations: {{podnet.dev/networks: {NETWORK}}}}}\nspec: {{{spec}}}\n",
            namespace(number)
        );
    };
    for number in 0..count.saturating_sub(1) {
        let (workload, peer) = (number % WORKLOADS, number * 7 % WORKLOADS);
        let spec = format!(
            "podSelector: {{matchLabels: {{app: a{workload}}}}}, ingress: [{{from: [{{namespaceSelector: {{}}, \
             podSelector: {{matchLabels: {{app: a{peer}}}}}}}], ports: [{{protocol: TCP, port: {}}}]}}, \
             {{from: [{{ipBlock: {{cidr: 192.168.{}.0/24}}}}]}}]",
            1000 + number % 200,
            number % 200
        );
        add(&format!("p{number}"), workload, &spec);
    }
    if count > 0 {
        let spec = "podSelector: {matchLabels: {app: db}}, \
                    ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}]}]";
        add("db", 0, spec);
    }
    text
}

/// Writes what other nodes say of their members.
fn members(directory: &Path, count: usize) -> Result<()> {
    for node in 0..NODES.min(count) {
        let of = (node..count).step_by(NODES);
        let endpoints: Vec<Value> = of
            .map(|number| {
                let [.., a, b, c] = number.to_be_bytes();
                let workload = number % WORKLOADS;
                json!({
                    "mac": format!("02:01:00:{a:02x}:{b:02x}:{c:02x}"),
                    "ips": [format!("10.10.{}.{c}", 128 + usize::from(b))],
                    "since": BEGIN,
                    "pod": format!("{}/pod{number}", namespace(workload)),
                    "labels": {"app": format!("a{workload}"), "tier": format!("t{}", workload % 5)},
                })
            })
            .collect();
        let name = format!("far-{node}");
        let vtep = Ipv4Addr::new(10, 99, 0, 100 + u8::try_from(node)?);
        let text = slice((NETWORK, ID), &name, vtep, &endpoints)?;
        std::fs::write(directory.join(format!("{name}.yaml")), text)?;
    }
    Ok(())
}
