//! The links of an attachment, as they are made.

use datapath::Hook;
use netdev::{Connection, Discipline, Neighbour, Netns, Shape, VethSpec};

use crate::afxdp::{self, FitPort};
use crate::error::AgentError;
use crate::node::Node;
use crate::ports::{ALIAS_PREFIX, attach_dispatcher};
use crate::record::{Attachment, Shaper};
use crate::routing::{Ear, PROTOCOL, listen};
use crate::shaping::{Pair, silence};

/// The link, with the dispatcher at its host end and the other end in the pod under its final name,
/// and the shaper, if what the pod sends is limited. The pod's end is made there: moving one takes
/// the kernel longer than all the rest.
pub(super) struct Links {
    link: VethSpec,
    hook: Hook,
    /// What makes an AF_XDP port of it.
    port: Option<FitPort>,
    into: Option<(Shape, Discipline)>,
    out_of: Option<Pair>,
    /// Where the node's own stack finds the pod, if it routes for the network.
    reach: Option<Reach>,
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
        let mut link = VethSpec::new(&record.host.name, record.key.ifname.as_str());
        link.peer_mac = Some(record.mac.0);
        link.mtu = u32::from(record.network.mtu);
        link.alias = Some(format!("{ALIAS_PREFIX}{}", record.key));
        let port = FitPort::of(record, netns);
        link.queues = Some(port.as_ref().map_or(1, FitPort::queues));
        link.peer_netns = Some(netns.clone());
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
            link,
            hook: node.hook.clone(),
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
        let name = &self.link.host_name;
        // A link of this name is what is left of an attachment with this key.
        connection.delete_by_name(name)?;
        let pair = connection.create_veth(&self.link)?;
        attach_dispatcher(connection, &self.hook, pair.host_ifindex)?;
        if let Some(port) = &self.port {
            afxdp::fit_link(&self.hook, port, pair.host_ifindex, pair.peer_ifindex)?;
        }
        if let Some((shape, discipline)) = self.into {
            connection.shape(pair.host_ifindex, &shape, discipline)?;
        }
        let make = |pair: Pair| pair.make(connection, &self.hook);
        let shaper = self.out_of.map(make).transpose()?;
        if let Some(reach) = &self.reach {
            listen(connection, (name, pair.host_ifindex), Ear::Host, reach.v6)?;
        } else {
            silence(name)?;
        }
        connection.set_up(pair.host_ifindex)?;
        if let Some(reach) = &self.reach {
            connection.reach(pair.host_ifindex, &reach.neighbours, PROTOCOL)?;
        }
        Ok(MadeLinks {
            host_end: pair.host_ifindex,
            shaper,
        })
    }
}
