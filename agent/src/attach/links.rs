//! The links of an attachment, as they are made.

use datapath::Hook;
use netdev::{Connection, Discipline, Neighbour, Netns, Shape, TapSpec, VethPair, VethSpec};

use crate::afxdp::{self, FitPort};
use crate::error::AgentError;
use crate::host::{ALIAS_PREFIX, Ear, PROTOCOL, attach_dispatcher, listen, silence};
use crate::node::Node;
use crate::record::{Attachment, Shaper};
use crate::shaping::Pair;

/// The link, with the dispatcher at its host end and the other end in the pod under its final name,
/// and the shaper, if what the pod sends is limited. The pod's end is made there: moving one takes
/// the kernel longer than all the rest.
pub(super) struct Links {
    link: Made,
    name: String,
    hook: Hook,
    /// What makes an AF_XDP port of it.
    port: Option<FitPort>,
    into: Option<(Shape, Discipline)>,
    out_of: Option<Pair>,
    /// Where the node's own stack finds the pod, if it routes for the network.
    reach: Option<Reach>,
}

/// How the link is made.
enum Made {
    Veth(Box<VethSpec>),
    /// With nothing in the pod: its other end is the switch's.
    Tap(TapSpec),
}

impl Made {
    fn of(record: &Attachment, netns: &Netns, queues: u32) -> Self {
        let alias = format!("{ALIAS_PREFIX}{}", record.key);
        let mtu = u32::from(record.network.mtu);
        if record.is_switched() {
            return Self::Tap(TapSpec {
                name: record.host.name.clone(),
                mtu,
                alias,
            });
        }
        let mut link = VethSpec::new(&record.host.name, record.key.ifname.as_str());
        link.peer_mac = Some(record.mac.0);
        link.mtu = mtu;
        link.alias = Some(alias);
        link.queues = Some(queues);
        link.peer_netns = Some(netns.clone());
        Self::Veth(Box::new(link))
    }

    /// Its ends; one without an end in the pod has none there.
    fn make(&self, connection: &mut Connection) -> Result<VethPair, AgentError> {
        let name = match self {
            Self::Veth(link) => &link.host_name,
            Self::Tap(link) => &link.name,
        };
        // A link of this name is what is left of an attachment with this key.
        connection.delete_by_name(name)?;
        Ok(match self {
            Self::Veth(link) => connection.create_veth(link)?,
            Self::Tap(link) => VethPair {
                host_ifindex: connection.create_tap(link)?,
                peer_ifindex: 0,
            },
        })
    }
}

/// What the node's stack needs to know of a pod.
struct Reach {
    neighbours: Vec<Neighbour>,
    v6: bool,
}

/// Indexes of what was made.
pub(super) struct MadeLinks {
    pub(super) host_end: u32,
    pub(super) shaper: Option<Shaper>,
}

impl Links {
    /// Those of a record.
    ///
    /// # Errors
    /// When it has limits that the kernel cannot keep.
    pub(super) fn of(node: &Node, record: &Attachment, netns: &Netns) -> Result<Self, AgentError> {
        let port = FitPort::of(record, netns, node.devices.directories());
        let queues = port.as_ref().map_or(1, FitPort::queues);
        let limits = record.limits;
        let (mut into, mut out_of) = (None, None);
        if !limits.is_unlimited() {
            let discipline = node.discipline(&limits)?;
            let mtu = record.network.mtu;
            into = limits.ingress.map(|limit| (limit.shape(mtu), discipline));
            out_of = limits
                .egress
                .map(|limit| Pair::of(record, limit, discipline));
        }
        Ok(Self {
            link: Made::of(record, netns, queues),
            name: record.host.name.clone(),
            hook: node.host.hook.clone(),
            port,
            into,
            out_of,
            reach: record.network.by_node.then(|| Reach {
                neighbours: record.neighbours(),
                v6: record.has_v6(),
            }),
        })
    }

    /// Makes them. Down until the dispatcher is attached and the rate limited, so that nothing
    /// passes them.
    ///
    /// # Errors
    /// When the kernel refuses; some of them may be there then.
    pub(super) fn make(self, connection: &mut Connection) -> Result<MadeLinks, AgentError> {
        let name = &self.name;
        let made = self.link.make(connection)?;
        let host_end = made.host_ifindex;
        attach_dispatcher(connection, &self.hook, host_end)?;
        if let Some(port) = &self.port {
            afxdp::fit_link(&self.hook, port, host_end, made.peer_ifindex)?;
        }
        if let Some((shape, discipline)) = self.into {
            connection.shape(host_end, &shape, discipline)?;
        }
        let make = |pair: Pair| pair.make(connection, &self.hook);
        let shaper = self.out_of.map(make).transpose()?;
        if let Some(reach) = &self.reach {
            listen(connection, (name, host_end), Ear::Host, reach.v6)?;
        } else {
            silence(name)?;
        }
        connection.set_up(host_end)?;
        if let Some(reach) = &self.reach {
            connection.reach(host_end, &reach.neighbours, PROTOCOL)?;
        }
        Ok(MadeLinks { host_end, shaper })
    }
}
