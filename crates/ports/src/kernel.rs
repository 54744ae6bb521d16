//! Verbs that the links of ports need of the kernel.
//!
//! Tests have another kernel than the node.

use datapath::Hook;
use host::{self, Ear, HostError, PROTOCOL};
use netdev::{
    Connection, Discipline, LinkChange, Neighbour, Offloads, Shape, TapSpec, VethPair, VethSpec,
};

use crate::afxdp::{self, FitPort};
use crate::error::PortError;

/// A connection to the kernel, in the node's namespace.
pub(crate) trait Kernel: 'static {
    /// Attach points of the programs at links.
    type Hook: Clone + Send + 'static;

    /// Removes a link; false when there is none of this name.
    ///
    /// # Errors
    /// When the kernel refuses, as for all verbs here.
    fn delete_by_name(&mut self, name: &str) -> Result<bool, netdev::Error>;

    /// Removes the link of this index.
    fn delete(&mut self, ifindex: u32) -> Result<(), netdev::Error>;

    /// Makes a pair of links, both down.
    fn create_veth(&mut self, spec: &VethSpec) -> Result<VethPair, netdev::Error>;

    /// Makes a TAP device, down; returns its index.
    fn create_tap(&mut self, spec: &TapSpec) -> Result<u32, netdev::Error>;

    /// [`host::attach_dispatcher`].
    fn attach_dispatcher(&mut self, hook: &Self::Hook, ifindex: u32) -> Result<(), HostError>;

    /// [`host::attach_way_out`].
    fn attach_way_out(&mut self, hook: &Self::Hook, ifindex: u32) -> Result<(), HostError>;

    /// Has a host end finish packets before it hands them over.
    fn finish_packets(&mut self, ifindex: u32) -> Result<(), PortError>;

    /// Removes the pins of an AF_XDP port.
    fn forget_xsk(&mut self, hook: &Self::Hook, host: &str) -> Result<(), PortError>;

    /// Puts the program at the pod's end of an AF_XDP port.
    fn attach_xsk(
        &mut self,
        hook: &Self::Hook,
        port: &FitPort,
        peer_ifindex: u32,
    ) -> Result<(), PortError>;

    /// Pins the map of an AF_XDP port where the container of its device sees it.
    fn share_xsk(&mut self, hook: &Self::Hook, port: &FitPort) -> Result<(), PortError>;

    /// Puts a queue at the root of a link.
    fn shape(
        &mut self,
        ifindex: u32,
        shape: &Shape,
        discipline: Discipline,
    ) -> Result<(), netdev::Error>;

    /// [`host::listen`].
    fn listen(&mut self, link: (&str, u32), ear: Ear, v6: bool) -> Result<(), netdev::Error>;

    /// [`host::silence`].
    fn silence(&mut self, link: &str) -> Result<(), netdev::Error>;

    /// Changes a link.
    fn reconfigure(&mut self, ifindex: u32, change: &LinkChange) -> Result<(), netdev::Error>;

    /// Sets a link up.
    fn set_up(&mut self, ifindex: u32) -> Result<(), netdev::Error>;

    /// Tells the node's stack where pods are.
    fn reach(&mut self, ifindex: u32, neighbours: &[Neighbour]) -> Result<(), netdev::Error>;
}

impl Kernel for Connection {
    type Hook = Hook;

    fn delete_by_name(&mut self, name: &str) -> Result<bool, netdev::Error> {
        self.delete_by_name(name)
    }

    fn delete(&mut self, ifindex: u32) -> Result<(), netdev::Error> {
        self.delete(ifindex).map(drop)
    }

    fn create_veth(&mut self, spec: &VethSpec) -> Result<VethPair, netdev::Error> {
        self.create_veth(spec)
    }

    fn create_tap(&mut self, spec: &TapSpec) -> Result<u32, netdev::Error> {
        self.create_tap(spec)
    }

    fn attach_dispatcher(&mut self, hook: &Hook, ifindex: u32) -> Result<(), HostError> {
        host::attach_dispatcher(self, hook, ifindex)
    }

    fn attach_way_out(&mut self, hook: &Hook, ifindex: u32) -> Result<(), HostError> {
        host::attach_way_out(self, hook, ifindex)
    }

    fn finish_packets(&mut self, ifindex: u32) -> Result<(), PortError> {
        Ok(Offloads::open()?.finish_packets(ifindex)?)
    }

    fn forget_xsk(&mut self, hook: &Hook, host: &str) -> Result<(), PortError> {
        Ok(hook.forget_xsk(host)?)
    }

    fn attach_xsk(&mut self, hook: &Hook, port: &FitPort, peer: u32) -> Result<(), PortError> {
        afxdp::attach(hook, port, peer)
    }

    fn share_xsk(&mut self, hook: &Hook, port: &FitPort) -> Result<(), PortError> {
        afxdp::share(hook, port)
    }

    fn shape(
        &mut self,
        ifindex: u32,
        shape: &Shape,
        discipline: Discipline,
    ) -> Result<(), netdev::Error> {
        self.shape(ifindex, shape, discipline)
    }

    fn listen(&mut self, link: (&str, u32), ear: Ear, v6: bool) -> Result<(), netdev::Error> {
        host::listen(self, link, ear, v6)
    }

    fn silence(&mut self, link: &str) -> Result<(), netdev::Error> {
        host::silence(link)
    }

    fn reconfigure(&mut self, ifindex: u32, change: &LinkChange) -> Result<(), netdev::Error> {
        self.reconfigure(ifindex, change)
    }

    fn set_up(&mut self, ifindex: u32) -> Result<(), netdev::Error> {
        self.set_up(ifindex)
    }

    fn reach(&mut self, ifindex: u32, neighbours: &[Neighbour]) -> Result<(), netdev::Error> {
        self.reach(ifindex, neighbours, PROTOCOL)
    }
}
