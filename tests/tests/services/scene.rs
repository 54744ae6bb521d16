//! Networks with Services, and what their pods can ask them.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::manifest::Network;
use testbed::talk;
pub(crate) use testbed::talk::socket;
use testbed::wait::{self, PATIENCE};
use testbed::{Node, Pod, Port, Setup};

/// The networks of the tests.
pub(crate) const NETWORKS: [&str; 2] = ["routed", "switched"];
/// Prefixes in which their Services have addresses.
pub(crate) const PREFIXES: [&str; 2] = ["10.96.0.0/16", "fd96::/112"];
/// Port of the Services.
pub(crate) const PORT: u16 = 80;
/// Port of the endpoints.
pub(crate) const TARGET: u16 = 8080;

/// Addresses of a Service, which each network has.
pub(crate) fn addresses(number: u8) -> [IpAddr; 2] {
    let parse = |text: String| text.parse().expect("an address");
    [format!("10.96.0.{number}"), format!("fd96::{number}")].map(parse)
}

pub(crate) fn setup() -> Setup {
    let of = |name, mode| {
        Network {
            subnets: vec!["10.61.0.0/24".into(), "fd61::/64".into()],
            ..Network::new(name, mode)
        }
        .services(&PREFIXES)
    };
    Setup::empty()
        .with_audits_logged()
        .network(&of("routed", "L3"))
        .network(&of("switched", "L2"))
}

/// A Service at port 80 of TCP and UDP.
///
/// `more` is the rest of its spec as flow YAML.
pub(crate) fn service(name: &str, network: &str, ips: [IpAddr; 2], more: &str) -> String {
    let [v4, v6] = ips;
    format!(
        "apiVersion: v1\nkind: Service\n\
         metadata: {{name: {name}, namespace: default, labels: {{podnet.dev/network: {network}}}}}\n\
         spec: {{clusterIP: {v4}, clusterIPs: [\"{v4}\", \"{v6}\"], {more}\
         ports: [{{name: tcp, port: {PORT}}}, {{name: udp, port: {PORT}, protocol: UDP}}]}}\n---\n"
    )
}

/// An endpoint of both families: its port, and its conditions as flow YAML.
pub(crate) type Endpoint<'a> = (&'a Port, &'a str);

/// Slices of a Service, one of each family.
pub(crate) fn slices(
    service: &str,
    network: &str,
    node: &str,
    endpoints: &[Endpoint<'_>],
) -> String {
    let of = |family: &str, ip: &dyn Fn(&Port) -> IpAddr| {
        let endpoints: Vec<String> = endpoints
            .iter()
            .map(|(port, conditions)| {
                format!(
                    "{{addresses: [\"{}\"], nodeName: {node}, conditions: {{{conditions}}}}}",
                    ip(port)
                )
            })
            .collect();
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {service}-{network}-{node}-{}, namespace: default, \
             labels: {{podnet.dev/network: {network}, kubernetes.io/service-name: {service}}}}}\n\
             addressType: {family}\n\
             ports: [{{name: tcp, port: {TARGET}}}, {{name: udp, port: {TARGET}, protocol: UDP}}]\n\
             endpoints: [{}]\n---\n",
            family.to_lowercase(),
            endpoints.join(", ")
        )
    };
    [
        of("IPv4", &|port| port.v4().into()),
        of("IPv6", &|port| port.v6().into()),
    ]
    .concat()
}

/// The same objects without the label of this network.
pub(crate) fn of_cluster(text: &str, network: &str) -> String {
    let label = format!("podnet.dev/network: {network}");
    text.replace(&format!("{label}, "), "").replace(&label, "")
}

/// A pod of namespace `default` with the label `app`.
pub(crate) fn app<'a>(node: &'a Node, app: &str, network: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(app);
    let mut conf = node.conf(network);
    conf["labels"] = json!({"app": app});
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={app}");
    let call = pod.call("ADD", "net1").env("CNI_ARGS", &args).conf(&conf);
    let result = call.run().result();
    let port = pod.port(network, "net1", result);
    (pod, port)
}

/// The address of a port that is of this family.
pub(crate) fn own(port: &Port, like: IpAddr) -> IpAddr {
    if like.is_ipv4() {
        port.v4().into()
    } else {
        port.v6().into()
    }
}

/// Waits until the ports of a network's Services have so many endpoints.
#[track_caller]
pub(crate) fn wait_served(node: &Node, network: &str, endpoints: usize) {
    wait::until_true("the Services to be in force", || {
        let rows = node.get("services");
        let of = rows.iter().filter(|row| row["network"] == network);
        let found = of.filter_map(|row| row["endpoints"].as_array());
        found.map(Vec::len).sum::<usize>() == endpoints
    });
}

/// Endpoints of UDP: one socket of each pod, for each family.
pub(crate) struct Echo<'a>(Vec<(&'a Port, UdpSocket)>);

impl<'a> Echo<'a> {
    /// Listens at the target port of these pods.
    pub(crate) fn at(ports: &[&'a Port], like: IpAddr) -> Self {
        let bind = |port: &&'a Port| (*port, socket(port, (own(port, like), TARGET).into()));
        Self(ports.iter().map(bind).collect())
    }

    /// Answers a datagram, if one is there; its receiver, sender and length.
    pub(crate) fn answer(&self) -> Option<(&'a Port, SocketAddr, usize)> {
        let mut buffer = [0; 65_536];
        for (port, socket) in &self.0 {
            socket.set_nonblocking(true).expect("a socket");
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let answer = buffer.get(..length).expect("a datagram");
                    socket.send_to(answer, from).expect("an answer");
                    return Some((*port, from, length));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => unreachable!("{error}"),
            }
        }
        None
    }
}

/// A UDP socket of a pod that takes datagrams of the Service only.
pub(crate) fn client(port: &Port, service: IpAddr) -> UdpSocket {
    let socket = socket(port, (own(port, service), 0).into());
    let connected = port.netns.run_in(|| socket.connect((service, PORT)));
    connected
        .expect("a namespace")
        .expect("a route to the Service");
    socket
}

/// Asks a Service by UDP until it answers; returns the endpoint that did.
#[track_caller]
pub(crate) fn ask<'a>(socket: &UdpSocket, echo: &Echo<'a>, question: &[u8]) -> &'a Port {
    let mut buffer = vec![0; 65_536];
    let mut endpoint = None;
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("a timeout");
    wait::until_true("an answer of the Service", || {
        // The error that a Service has refused the last one is read so, too.
        let _ = socket.send(question);
        wait::until("the question at an endpoint", || match echo.answer() {
            Some((port, from, length)) => {
                let local = socket.local_addr().expect("an address");
                // One that a socket before has asked once more may come late.
                if from.port() != local.port() {
                    return None;
                }
                assert_eq!((from, length), (local, question.len()));
                endpoint = Some(port);
                Some(())
            }
            None => Some(()),
        });
        socket
            .recv(&mut buffer)
            .is_ok_and(|length| buffer.get(..length) == Some(question))
    });
    endpoint.expect("an endpoint that has answered")
}

/// Both ends of a TCP connection through a Service, and its listener's number.
pub(crate) fn connect(
    from: &Port,
    service: IpAddr,
    endpoints: &[&Port],
) -> Result<(TcpStream, TcpStream, usize), Error> {
    let listen = |port: &&Port| {
        let at = SocketAddr::from((own(port, service), TARGET));
        let listener = talk::bound(&port.netns, || TcpListener::bind(at)).expect("a listener");
        listener.set_nonblocking(true).expect("an option");
        listener
    };
    let listeners: Vec<TcpListener> = endpoints.iter().map(listen).collect();
    let to = SocketAddr::from((service, PORT));
    let here = from
        .netns
        .run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
    let here = here.expect("a namespace")?;
    let (there, peer, number) = wait::until("the connection at an endpoint", || {
        let mut all = listeners.iter().enumerate();
        all.find_map(|(number, listener)| {
            let (stream, peer) = listener.accept().ok()?;
            Some((stream, peer, number))
        })
    });
    // Nothing between them changes who asks.
    assert_eq!(peer, here.local_addr()?);
    there.set_nonblocking(false)?;
    for stream in [&here, &there] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
    }
    Ok((here, there, number))
}

/// Some bytes each way through a connection.
#[track_caller]
pub(crate) fn talk(here: &mut TcpStream, there: &mut TcpStream) {
    let mut buffer = [0; 8];
    here.write_all(b"question").expect("a connection");
    there.read_exact(&mut buffer).expect("a connection");
    assert_eq!(&buffer, b"question");
    there.write_all(b"answered").expect("a connection");
    here.read_exact(&mut buffer).expect("a connection");
    assert_eq!(&buffer, b"answered");
}

/// Asserts that a Service refuses connections at once.
#[track_caller]
pub(crate) fn refused(from: &Port, service: IpAddr, port: u16) {
    let to = SocketAddr::from((service, port));
    let connected = from
        .netns
        .run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
    let error = connected.expect("a namespace").expect_err("no connection");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// Waits until policies drop a datagram of a pod to a Service, for this reason.
#[track_caller]
pub(crate) fn denied(node: &Node, from: &Port, service: IpAddr, reason: DropReason) {
    let before = node.drops().of(&from.network, reason);
    let socket = socket(from, (own(from, service), 0).into());
    wait::until_true("a drop by policy", || {
        let to = (service, PORT);
        socket.send_to(b"question", to).expect("a datagram");
        node.drops().of(&from.network, reason) > before
    });
}
