//! Set up a lying pod and the targets of its frames: a kernel, sockets, an uplink.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use netdev::Offloads;
use testbed::host::{UPLINK, WORLD, connection};
use testbed::manifest::attachment;
use testbed::{MemifApp, Network, Node, Pod, Port, Setup, Tap, VirtioHeader, traffic, wait};

pub(super) const IP: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;

/// A VLAN, and a segment without tags.
pub(super) const NETWORKS: [&str; 2] = ["wired", "plain"];
const SOCKETS: [&str; 2] = ["AFXDP", "Memif"];
/// Index in [`Scene::targets`].
pub(super) const AF_XDP: usize = 1;
/// How messages call what is beyond the uplink.
pub(super) const UPLINK_NAME: &str = "the uplink";
/// An address without an owner, whose frames leave by the uplink.
const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);

pub(super) fn setup() -> Setup {
    let subnets = ["10.10.0.0/24", "fd10:10::/64"];
    let mut setup = Setup::empty()
        .network(&Network::l2("wired", &subnets).id(2001).vlan(100))
        .network(&Network::l2("plain", &subnets).id(2002).native());
    for network in NETWORKS {
        for kind in SOCKETS {
            let (name, spec) = (
                object(kind, network),
                format!("{{interface: {{type: {kind}}}}}"),
            );
            setup = setup.file(&format!("{name}.yaml"), &attachment(&name, network, &spec));
        }
    }
    setup
}

fn object(kind: &str, network: &str) -> String {
    format!("{kind}-{network}").to_lowercase()
}

#[derive(Debug)]
pub(super) struct Scene<'a> {
    node: &'a Node,
    network: &'static str,
    pub(super) mallory: Port,
    pub(super) bob: Port,
    sockets: [Port; 2],
    app: MemifApp,
    pods: Vec<Pod<'a>>,
    headers: Tap,
    pub(super) world: Tap,
    pub(super) taps: Vec<Tap>,
}

impl<'a> Scene<'a> {
    pub(super) fn set(node: &'a Node, network: &'static str) -> Self {
        finish_at_uplink(node);
        let [mallory, bob, xdp, memif] = ["mallory", "bob", "xdp", "memif"].map(|it| node.pod(it));
        let by = |kind| node.attachment_conf(network, &object(kind, network));
        let (own, friend) = (mallory.attach(network, "net1"), bob.attach(network, "net1"));
        let sockets = [
            xdp.attach_conf(&by(SOCKETS[0]), "net1"),
            memif.attach_conf(&by(SOCKETS[1]), "net1"),
        ];
        let app = MemifApp::start(&sockets[1]);
        traffic::assert_reaches(&own, &friend);
        traffic::assert_reaches(&own, &sockets[0]);
        traffic::assert_reaches(&own, &sockets[1]);
        let taps = [&friend, &sockets[0], &sockets[1]].map(Port::tap);
        let beyond = Tap::on(node.host().outside(), WORLD);
        Self {
            node,
            network,
            headers: own.tap().with_headers(),
            world: Tap::on(node.host().outside(), WORLD).with_headers(),
            mallory: own,
            bob: friend,
            sockets,
            app,
            pods: vec![mallory, bob, xdp, memif],
            taps: taps.into_iter().chain([beyond]).collect(),
        }
    }

    /// Names and MAC addresses: a pod's kernel, the sockets, the uplink.
    pub(super) fn targets(&self) -> [(&'static str, MacAddr); 4] {
        let [xdp, memif] = &self.sockets;
        [
            ("a veth", self.bob.mac),
            ("an AF_XDP port", xdp.mac),
            ("a memif port", memif.mac),
            (UPLINK_NAME, NOBODY),
        ]
    }

    /// Every pod that is not the liar.
    pub(super) fn others(&self) -> [&Port; 3] {
        let [xdp, memif] = &self.sockets;
        [&self.bob, xdp, memif]
    }

    pub(super) fn send(&self, header: VirtioHeader, frame: &[u8]) -> Result<(), rustix::io::Errno> {
        loop {
            match self.headers.try_send_with(header, frame) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => {
                    std::thread::yield_now();
                }
                other => return other,
            }
        }
    }

    fn malformed(&self) -> u64 {
        self.node.drops().of(self.network, DropReason::Malformed)
    }

    /// Packets of the network that were dropped, for whatever reason.
    pub(super) fn refused_so_far(&self) -> u64 {
        self.node.drops().of_network(self.network)
    }

    /// The frame is dropped as malformed, and no tap sees it.
    #[track_caller]
    pub(super) fn refused(&self, what: &str, header: VirtioHeader, frame: &[u8], word: &[u8]) {
        self.refused_by(&self.headers, what, header, frame, word);
    }

    /// The same of a frame that somebody else sends.
    #[track_caller]
    pub(super) fn refused_by(
        &self,
        sender: &Tap,
        what: &str,
        header: VirtioHeader,
        frame: &[u8],
        word: &[u8],
    ) {
        let before = self.malformed();
        sender
            .try_send_with(header, frame)
            .expect("a frame the kernel takes");
        wait::until_true(&format!("{what}: a drop"), || {
            let seen = self.taps.iter().position(|tap| tap.count(word) > 0);
            assert_eq!(seen, None, "{what}: it was delivered");
            self.malformed() > before
        });
    }

    /// Asserts that a frame arrives, with its checksum written if it left the kernel.
    #[track_caller]
    pub(super) fn passes(&self, what: &str, place: (u16, u16), frame: &[u8], word: &[u8]) {
        self.send(VirtioHeader::checksum(place.0, place.1), frame)
            .expect("a frame the kernel takes");
        let mut arrived = 0;
        wait::until_true(&format!("{what}: it arrives"), || {
            arrived += self.taps.iter().map(|tap| tap.count(word)).sum::<usize>();
            arrived > 0
        });
    }

    pub(super) fn close(self) {
        drop(self.app);
        for pod in &self.pods {
            pod.del(self.network, "net1").silent();
        }
    }
}

/// Makes the uplink one of an interface that offloads nothing.
fn finish_at_uplink(node: &Node) {
    let link = connection(node.netns()).by_name(UPLINK).expect("links");
    let ifindex = link.expect("the uplink").ifindex;
    let offloads = node.netns().run_in(Offloads::open).expect("entered");
    let mut offloads = offloads.expect("a socket of ethtool");
    offloads
        .finish_packets(ifindex)
        .expect("a feature that may be changed");
}
