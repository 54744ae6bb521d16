//! A rolling update of the endpoints while clients go on to connect.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testbed::wait::{self, PATIENCE};
use testbed::{Node, Pod, Port};

use super::scene::{PORT, TARGET, addresses, app, service, setup, slices};

const NETWORK: &str = "routed";
/// Endpoints at a time.
const ENDPOINTS: usize = 4;
/// Endpoints that are replaced, one after another.
const REPLACED: usize = 8;
/// Connections of the client each second.
const RATE: u32 = 2000;

/// A pod that answers each connection by a byte, and ends it.
struct Server<'a> {
    pod: Pod<'a>,
    port: Port,
}

impl Server<'_> {
    /// Serves until `ends`, and then what has come by then; counts connections.
    fn serve(&self, ends: &AtomicBool, served: &AtomicUsize) {
        let at = SocketAddr::from((self.port.v4(), TARGET));
        let listener = self.port.netns.run_in(|| TcpListener::bind(at));
        let listener = listener.expect("a namespace").expect("a listener");
        listener.set_nonblocking(true).expect("an option");
        loop {
            let last = ends.load(Ordering::Acquire);
            match listener.accept() {
                Ok((mut stream, _)) => {
                    stream.write_all(b"!").expect("a connection");
                    served.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if last {
                        return;
                    }
                    thread::yield_now();
                }
                Err(error) => unreachable!("{error}"),
            }
        }
    }
}

/// Connections that a client has made, and those that did not work.
#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    failed: AtomicUsize,
}

/// Connects [`RATE`] times a second until `ends`.
fn connect(port: &Port, to: SocketAddr, ends: &AtomicBool, counts: &Counts) {
    let inside = port.netns.run_in(|| {
        let begun = Instant::now();
        for number in 1.. {
            if ends.load(Ordering::Acquire) {
                return;
            }
            let answered = TcpStream::connect_timeout(&to, PATIENCE).and_then(|mut stream| {
                let mut all = Vec::new();
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.read_to_end(&mut all)?;
                Ok(all == b"!")
            });
            match answered {
                Ok(true) => counts.made.fetch_add(1, Ordering::Relaxed),
                other => {
                    eprintln!("connection {number}: {other:?}");
                    counts.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
            // At this rate, and not as fast as it goes.
            let due = begun + Duration::from_secs(1) * number / RATE;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    });
    inside.expect("a namespace");
}

/// Writes the endpoints, and waits until these and no others are in force.
fn lead(node: &Node, servers: &BTreeMap<Ipv4Addr, &Port>) {
    let endpoints: Vec<_> = servers
        .values()
        .map(|port| (*port, "ready: true"))
        .collect();
    let text = [
        service("web", NETWORK, addresses(10), ""),
        slices("web", NETWORK, node.name(), &endpoints),
    ]
    .concat();
    node.write_manifest("services.yaml", &text);
    let mut wanted: Vec<String> = servers.keys().map(|ip| format!("{ip}:{TARGET}")).collect();
    wanted.sort();
    wait::until_true("the endpoints to be in force", || {
        let rows = node.get("services");
        let mut rows = rows
            .iter()
            .filter(|row| row["protocol"] == "TCP" && row["address"] == "10.96.0.10");
        rows.next().is_some_and(|row| {
            let found = row["endpoints"].as_array().into_iter().flatten();
            let mut found: Vec<&str> = found.filter_map(|it| it.as_str()).collect();
            found.sort_unstable();
            found == wanted
        })
    });
}

/// D-SVC-14 in numbers: no connection is refused, reset or lost.
#[test]
fn a_rolling_update_of_the_endpoints_fails_no_connection() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let server = |number: usize| {
        let (pod, port) = app(&node, &format!("web{number}"), NETWORK);
        Server { pod, port }
    };
    let all: Vec<Server<'_>> = (0..ENDPOINTS + REPLACED).map(server).collect();
    let (_client, client) = app(&node, "client", NETWORK);
    let ends: Vec<AtomicBool> = all.iter().map(|_| AtomicBool::new(false)).collect();
    let served: Vec<AtomicUsize> = all.iter().map(|_| AtomicUsize::new(0)).collect();
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let to = SocketAddr::from((addresses(10)[0], PORT));
    let begun = Instant::now();
    thread::scope(|scope| {
        for (server, (ends, served)) in all.iter().zip(ends.iter().zip(&served)) {
            scope.spawn(|| server.serve(ends, served));
        }
        let now = |first: usize| -> BTreeMap<Ipv4Addr, &Port> {
            let shown = all.iter().skip(first).take(ENDPOINTS);
            shown.map(|it| (it.port.v4(), &it.port)).collect()
        };
        lead(&node, &now(0));
        let connecting = scope.spawn(|| connect(&client, to, &stop, &counts));
        for (gone, end) in ends.iter().take(REPLACED).enumerate() {
            lead(&node, &now(gone + 1));
            // It ends when no new connection is led to it, as a pod that waits before it ends.
            end.store(true, Ordering::Release);
        }
        // The client's choice is by chance: the newest endpoint may have to wait for its first one.
        wait::until_true("a connection at each endpoint", || {
            served.iter().all(|it| it.load(Ordering::Relaxed) > 0)
        });
        stop.store(true, Ordering::Release);
        connecting.join().expect("the client");
        for end in &ends {
            end.store(true, Ordering::Release);
        }
    });
    let served: Vec<usize> = served.into_iter().map(AtomicUsize::into_inner).collect();
    let (made, failed) = (counts.made.into_inner(), counts.failed.into_inner());
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!("{made} connections in {seconds:.1} s to {served:?}, {failed} failed");
    assert_eq!(failed, 0, "of {made} connections");
    assert_eq!(served.iter().sum::<usize>(), made);
    assert!(served.iter().all(|it| *it > 0), "{served:?}");
    for server in all {
        server.pod.detach(NETWORK, "net1");
    }
}
