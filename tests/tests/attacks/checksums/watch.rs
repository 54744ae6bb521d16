//! All that reaches the targets of a pod that lies.

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use netdev::LinkFilter;
use testbed::frame::Marker;
use testbed::tap::contains;
use testbed::{Node, afxdp, wait};
use xsk::{Port as Socket, Verdict};

use super::random::lie;
use super::scene::{AF_XDP, Scene};

/// A program's socket at the AF_XDP port, and packet sockets at all targets.
pub(super) struct Watch<'a, 'node> {
    pub(super) scene: &'a Scene<'node>,
    socket: Socket,
    /// MAC addresses that may send frames, other than the pod's.
    known: Vec<MacAddr>,
    /// In all that the pod sends at random.
    word: Marker,
    /// Of frames to this address those that arrived at each target are counted.
    to: MacAddr,
    pub(super) arrived: [u64; 4],
    /// Statement of a message about the frames before it.
    pub(super) what: String,
}

impl<'a, 'node> Watch<'a, 'node> {
    pub(super) fn on(scene: &'a Scene<'node>, node: &Node, word: Marker) -> Self {
        let mut known: Vec<_> = scene.others().map(|it| it.mac).into();
        known.push(GATEWAY_MAC);
        known.extend(neighbours(node));
        let [_, xdp, _] = scene.others();
        Self {
            scene,
            socket: afxdp::open(xdp, 0),
            known,
            word,
            to: MacAddr::BROADCAST,
            arrived: [0; 4],
            what: String::new(),
        }
    }

    /// Counts frames to this address from now on.
    pub(super) fn begin(&mut self, to: MacAddr) {
        self.judge();
        (self.to, self.arrived) = (to, [0; 4]);
    }

    /// Checks all frames that arrived for lies, unknown senders and the liar's own.
    ///
    /// A lie is looked for in frames with the liar's MAC address.
    pub(super) fn judge(&mut self) {
        self.look(|_, _| {});
    }

    /// The same until a frame with this word arrives there.
    #[track_caller]
    pub(super) fn wait(&mut self, place: usize, word: &[u8], what: &str) {
        let mut found = false;
        wait::until_true(what, || {
            self.look(|at, frame| found |= at == place && contains(frame, word));
            found
        });
    }

    fn look(&mut self, mut visit: impl FnMut(usize, &[u8])) {
        for (place, tap) in self.scene.taps.iter().enumerate() {
            while let Some(frame) = tap.next() {
                visit(place, &frame);
                let arrived = self.is_counted(&frame);
                self.arrived[place] += u64::from(arrived);
            }
        }
        let mut frames = Vec::new();
        while self.socket.receive(64, |frame| {
            frames.push(frame.to_vec());
            Verdict::Done
        }) > 0
        {}
        for frame in frames {
            visit(AF_XDP, &frame);
            let arrived = self.is_counted(&frame);
            self.arrived[AF_XDP] += u64::from(arrived);
        }
    }

    /// Judges a frame, and says whether it is one to count.
    fn is_counted(&self, frame: &[u8]) -> bool {
        let address = |at: usize| frame.get(at..at + 6).and_then(<[u8]>::first_chunk).copied();
        let (Some(to), Some(from)) = (address(0).map(MacAddr), address(6).map(MacAddr)) else {
            return false;
        };
        let what = &self.what;
        if from == self.scene.mallory.mac {
            let lie = lie(&self.scene.mallory, frame);
            assert_eq!(lie, None, "{what}: {frame:02x?}");
            return to == self.to;
        }
        let known = self.known.contains(&from);
        assert!(known, "{what}: an unknown MAC address: {frame:02x?}");
        let is_own = contains(frame, &self.word);
        assert!(!is_own, "{what}: another's MAC address: {frame:02x?}");
        false
    }
}

/// MAC addresses of the node's and the world's own interfaces.
fn neighbours(node: &Node) -> Vec<MacAddr> {
    let links = node.links().into_iter();
    let own = links.filter_map(|link| link.mac.map(MacAddr));
    let (mut world, _) = node.host().world();
    let theirs = world.list(&LinkFilter::default());
    let theirs = theirs.expect("links can be read").into_iter();
    own.chain(theirs.filter_map(|link| link.mac.map(MacAddr)))
        .collect()
}
