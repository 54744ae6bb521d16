//! Makes, moves, configures and removes kernel network links.
//!
//! It is the only crate that speaks netlink or enters a network namespace.
//!
//! It knows nothing of Kubernetes, CNI, BPF or where an address came from: plain values in, plain
//! values out. It keeps no state; the kernel is the state.
//!
//! Two layers:
//!
//! - [`Connection`]: one netlink socket, blocking calls. A call is one or two system calls long.
//! - [`Netlink`]: a cheap handle for one namespace for async callers. It runs each call on tokio's
//!   blocking pool with a connection of its own, because removing a network device holds its caller
//!   for milliseconds of RCU grace period and must neither stall a tokio worker nor queue other
//!   requests behind it.
//!
//! Entering a namespace always happens on a thread that is made for it and ends afterwards
//! ([`Netns::enter`], [`Netns::run_in`]): no thread is ever left in a foreign namespace.
//!
//! Moving a link between namespaces costs an `rcu_barrier` with the kernel's RTNL lock held, 15 ms
//! and more in which no other link can be made ([`Netlink::place_pod_end`]). Making the pod end in
//! its namespace from the start ([`VethSpec::peer_netns`]) costs nothing extra, and the kernel
//! itself refuses a name that is taken there.
//!
//! Everything works on Linux 5.10.
//!
//! ```no_run
//! # async fn example(fd: std::os::fd::OwnedFd) -> Result<(), netdev::Error> {
//! use netdev::{Address, LinkLocal, Netlink, Netns, PodEnd, VethSpec};
//!
//! let host = Netlink::current()?;
//! let pod = Netns::from_fd(fd)?;
//! let spec = VethSpec { peer_netns: Some(pod.clone()), ..VethSpec::new("pn0a", "net1") };
//! let pair = host.create_veth(spec).await?;
//! // The host end is still down: the place to attach what filters it.
//! let mut end = PodEnd::new("net1");
//! end.addresses = vec![Address::new("10.10.0.5".parse().expect("an address"), 24)];
//! end.link_local = LinkLocal::Eui64;
//! pod.configure_pod_end(end).await?;
//! host.set_up(pair.host_ifindex).await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod busy_poll;
mod connection;
mod error;
mod filter;
mod link;
mod monitor;
mod netfilter;
mod netlink;
mod netns;
mod offload;
mod packet;
mod pod;
mod reach;
mod route;
mod rule;
mod shape;
pub mod sysctl;
mod tap;
mod tunnel;
mod way;
mod wire;
mod xdp;

pub use crate::address::{Address, AddressState, link_local};
pub use crate::busy_poll::busy_poll;
pub use crate::connection::Connection;
pub use crate::error::{Error, LinkId, Refusal};
pub use crate::filter::IngressFilter;
pub use crate::link::{
    AddrGenMode, Link, LinkChange, LinkFilter, Mac, VethPair, VethSpec, check_name, may_be_there,
};
pub use crate::monitor::{LinkEvent, LinkMonitor};
pub use crate::netfilter::{
    Bound, Gate, Guard, Limit, LinkName, Masquerade, Netfilter, Packets, PortAt, PortForward,
    PortProtocol, Ports, Ruleset, RulesetMonitor, TABLE, TableWrite, Whose,
};
pub use crate::netlink::Netlink;
pub use crate::netns::{NamedNetns, Netns, NetnsId};
pub use crate::offload::Offloads;
pub use crate::packet::packet_socket;
pub use crate::pod::{LinkLocal, PlacedEnd, PodEnd};
pub use crate::reach::{Neighbour, Reached, RouteKind, RouteMatch};
pub use crate::route::{Route, RouteScope};
pub use crate::rule::OwnTable;
pub use crate::shape::{Discipline, Flows, RootQueue, Shape, ShapeState, shape_support};
pub use crate::sysctl::{Family, Sysctl};
pub use crate::tap::TapSpec;
pub use crate::tunnel::{VxlanSpec, unfinished};
pub use crate::way::{Way, WayMonitor, has_ipsec_policies};
pub use crate::xdp::XdpPrograms;
