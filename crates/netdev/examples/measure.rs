//! Time the steps of ADD and DEL on this kernel.
//!
//! Run `cargo run --release -p netdev --example measure [ROUNDS]` as root, on an otherwise quiet machine.
//! It works in unnamed namespaces of its own.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netdev::{
    Address, Connection, Discipline, Error, Flows, LinkChange, LinkLocal, Netlink, Netns, PodEnd,
    Route, Shape, Sysctl, VethSpec, shape_support,
};

const POD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x2a];

/// Samples of one step.
struct Step {
    name: String,
    samples: Vec<Duration>,
}

impl Step {
    fn new(name: &str) -> Self {
        Self::named(name.to_owned())
    }

    fn named(name: String) -> Self {
        Self {
            name,
            samples: Vec::new(),
        }
    }

    fn time<T>(&mut self, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let start = Instant::now();
        let done = f()?;
        self.samples.push(start.elapsed());
        Ok(done)
    }

    fn print(mut self) {
        self.samples.sort_unstable();
        let at = |percent: usize| {
            let index = self.samples.len() * percent / 100;
            self.samples.get(index).map_or(0, Duration::as_micros)
        };
        println!(
            "{:<58} {:>7} {:>7} {:>7}",
            self.name,
            at(10),
            at(50),
            at(90)
        );
    }
}

fn spec(n: usize) -> VethSpec {
    VethSpec {
        queues: Some(1),
        ..VethSpec::new(&format!("h{n}"), &format!("p{n}"))
    }
}

fn rename_and_move(to: &Netns) -> LinkChange {
    LinkChange {
        netns: Some(to.clone()),
        name: Some("net1".to_owned()),
        mac: Some(POD_MAC),
        ..LinkChange::default()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn dual_stack() -> PodEnd {
    let mut end = PodEnd::new("net1");
    end.mac = Some(POD_MAC);
    end.addresses = vec![
        Address::new(ip("10.10.0.5"), 24),
        Address::new(ip("fd10:10::5"), 64),
    ];
    end.link_local = LinkLocal::Eui64;
    end.routes = vec![
        Route::new(ip("10.20.0.0"), 16, Some(ip("10.10.0.1")), 0),
        Route::default_via(ip("fd10:10::1"), 0),
    ];
    end.sysctls = vec![
        Sysctl::v6("disable_ipv6", "0"),
        Sysctl::v4("arp_notify", "1"),
        Sysctl::v6("ndisc_notify", "1"),
        Sysctl::v6("accept_ra", "0"),
    ];
    end
}

/// Making, moving and the ways to delete, on one blocking connection.
fn links(rounds: usize) -> Result<(), Error> {
    let (node, pod) = (Netns::create()?, Netns::create()?);
    let mut host = node.run_in(Connection::open)??;
    let mut inside = pod.run_in(Connection::open)??;
    let mut make = Step::new("create a veth pair (3 requests, 2 sends)");
    let mut make_across = Step::new("create a veth pair, peer in the pod's namespace at once");
    let mut lookup = Step::new("look a link up by name");
    let mut moved = Step::new("move + rename + MAC (1 request)");
    let mut same = Step::new("delete a pair, both ends here, down");
    let mut across = Step::new("delete by the host end, peer in the pod, up");
    let mut across_down = Step::new("  the same after setting the host end down");
    let mut by_pod = Step::new("  the same by the pod end");
    let mut back = Step::new("  the same after moving the peer back: the move");
    let mut back_delete = Step::new("  the same after moving the peer back: the delete");
    for n in 0..rounds {
        let pair = make.time(|| host.create_veth(&spec(n)))?;
        lookup.time(|| host.by_name(&format!("h{n}")))?;
        same.time(|| host.delete(pair.host_ifindex))?;

        let spec_across = VethSpec {
            peer_netns: Some(pod.clone()),
            ..spec(n)
        };
        let pair = make_across.time(|| host.create_veth(&spec_across))?;
        host.delete(pair.host_ifindex)?;

        for way in 0..4 {
            let pair = host.create_veth(&spec(n))?;
            host.set_up(pair.host_ifindex)?;
            moved.time(|| host.reconfigure(pair.peer_ifindex, &rename_and_move(&pod)))?;
            let net1 = inside.by_name("net1")?.map_or(0, |link| link.ifindex);
            inside.add_address(net1, Address::new(ip("10.10.0.5"), 24))?;
            inside.add_address(net1, Address::new(ip("fd10:10::5"), 64))?;
            inside.set_up(net1)?;
            match way {
                0 => across.time(|| host.delete(pair.host_ifindex))?,
                1 => {
                    host.reconfigure(pair.host_ifindex, &LinkChange::updown(false))?;
                    across_down.time(|| host.delete(pair.host_ifindex))?
                }
                2 => by_pod.time(|| inside.delete(net1))?,
                _ => {
                    let change = LinkChange {
                        netns: Some(node.clone()),
                        name: Some(format!("p{n}")),
                        ..LinkChange::default()
                    };
                    back.time(|| inside.reconfigure(net1, &change))?;
                    back_delete.time(|| host.delete(pair.host_ifindex))?
                }
            };
        }
    }
    for step in [
        make,
        make_across,
        lookup,
        moved,
        same,
        across,
        across_down,
        by_pod,
        back,
        back_delete,
    ] {
        step.print();
    }
    Ok(())
}

/// Times rate limits, by discipline, on a device that is down and one that is up.
fn shapes(rounds: usize) -> Result<(), Error> {
    const FLOWS: Flows = Flows::new(0x0f10, 64, 65);
    let node = Netns::create()?;
    let mut host = node.run_in(Connection::open)??;
    let mut support = Step::new("which limits the kernel has");
    for _ in 0..rounds.min(10) {
        support.time(|| shape_support(FLOWS))?;
    }
    support.print();
    let shape = Shape::new(100_000_000, None, 1500);
    let faster = Shape::new(200_000_000, None, 1500);
    let best = shape_support(FLOWS)?;
    let found = [
        Discipline::FqCodel,
        Discipline::Htb(FLOWS),
        Discipline::Fifo,
    ]
    .into_iter()
    .skip_while(|discipline| best != Some(*discipline));
    for discipline in found {
        for up in [false, true] {
            let pair = host.create_veth(&spec(0))?;
            if up {
                host.set_up(pair.peer_ifindex)?;
                host.set_up(pair.host_ifindex)?;
            }
            let way = if up { "up" } else { "down" };
            let step = |what: &str| format!("{discipline}, {way}: {what}");
            let mut steps = ["make", "look", "change", "make again", "remove"]
                .map(|what| Step::named(step(what)));
            let [make, look, change, again, remove] = &mut steps;
            let end = pair.host_ifindex;
            for _ in 0..rounds {
                make.time(|| host.shape(end, &shape, discipline))?;
                look.time(|| host.shape_of(end))?;
                change.time(|| host.shape(end, &faster, discipline))?;
                again.time(|| host.shape(end, &faster, discipline))?;
                remove.time(|| host.unshape(end))?;
            }
            let mut delete = Step::named(step("delete the device with it"));
            let mut bare = Step::named(step("delete the device without"));
            host.delete(end)?;
            for n in 0..2 * rounds {
                let pair = host.create_veth(&spec(0))?;
                if n % 2 == 0 {
                    host.shape(pair.host_ifindex, &shape, discipline)?;
                }
                if up {
                    host.set_up(pair.peer_ifindex)?;
                    host.set_up(pair.host_ifindex)?;
                }
                let step = if n % 2 == 0 { &mut delete } else { &mut bare };
                step.time(|| host.delete(pair.host_ifindex))?;
            }
            steps
                .into_iter()
                .chain([delete, bare])
                .for_each(Step::print);
        }
    }
    Ok(())
}

/// Times the agent's calls, from a tokio task.
async fn handle(rounds: usize) -> Result<(), Error> {
    let (node, pod) = (Netns::create()?, Netns::create()?);
    let host = Netlink::in_netns(&node)?;
    let mut hop = Step::new("async: look a link up by index");
    let mut verify = Step::new("open and verify a namespace");
    let mut visit = Step::new("async: visit a namespace and do nothing");
    let mut bare = Step::new("async: place_pod_end, name only");
    let mut place = Step::new("async: place_pod_end, dual stack, 4 sysctls, 2 routes");
    let mut configure = Step::new("async: configure_pod_end (no move), the same");
    for n in 0..rounds {
        let start = Instant::now();
        host.by_index(1).await?;
        hop.samples.push(start.elapsed());
        verify.time(|| Netns::open("/proc/self/ns/net".as_ref()).map(drop))?;
        let start = Instant::now();
        pod.enter(|| ()).await?;
        visit.samples.push(start.elapsed());
        for (step, end) in [(&mut bare, PodEnd::new("net1")), (&mut place, dual_stack())] {
            let pair = host.create_veth(spec(n)).await?;
            host.set_up(pair.host_ifindex).await?;
            let start = Instant::now();
            host.place_pod_end(&pod, pair.peer_ifindex, end).await?;
            step.samples.push(start.elapsed());
            host.delete(pair.host_ifindex).await?;
        }
        let pair = host.create_veth(spec(n)).await?;
        host.set_up(pair.host_ifindex).await?;
        host.reconfigure(pair.peer_ifindex, rename_and_move(&pod))
            .await?;
        let start = Instant::now();
        pod.configure_pod_end(dual_stack()).await?;
        configure.samples.push(start.elapsed());
        host.delete(pair.host_ifindex).await?;
    }
    for step in [hop, verify, visit, bare, place, configure] {
        step.print();
    }

    let mut whole = Step::new("async: pair across namespaces + configure + host end up");
    for n in 0..rounds {
        let spec = VethSpec {
            peer_netns: Some(pod.clone()),
            peer_name: "net1".to_owned(),
            peer_mac: Some(POD_MAC),
            ..spec(n)
        };
        let start = Instant::now();
        let pair = host.create_veth(spec).await?;
        pod.configure_pod_end(dual_stack()).await?;
        host.set_up(pair.host_ifindex).await?;
        whole.samples.push(start.elapsed());
        host.delete(pair.host_ifindex).await?;
    }
    whole.print();

    let mut batch = Step::new("async: delete 8 pairs at once, all gone");
    let mut beside = Step::new("async: look a link up beside that");
    for _ in 0..rounds.min(20) {
        let mut pairs = Vec::new();
        for n in 0..8 {
            pairs.push(host.create_veth(spec(n)).await?);
        }
        let start = Instant::now();
        let tasks: Vec<_> = pairs
            .into_iter()
            .map(|pair| {
                let host = host.clone();
                tokio::spawn(async move { host.delete(pair.host_ifindex).await })
            })
            .collect();
        let lookup = Instant::now();
        host.by_index(1).await?;
        beside.samples.push(lookup.elapsed());
        for task in tasks {
            task.await.map_err(|_| Error::ShuttingDown)??;
        }
        batch.samples.push(start.elapsed());
    }
    batch.print();
    beside.print();
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    println!(
        "{:<58} {:>7} {:>7} {:>7}",
        "microseconds", "p10", "p50", "p90"
    );
    tokio::task::spawn_blocking(move || links(rounds).and_then(|()| shapes(rounds)))
        .await
        .map_err(|_| Error::ShuttingDown)??;
    handle(rounds).await
}
