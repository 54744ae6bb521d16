//! The links of an attachment, as they are made.

use std::time::Duration;

use book::record::{Attachment, Shaper};
use host::{ALIAS_PREFIX, Ear};
use netdev::{
    Discipline, LinkEvent, LinkMonitor, Neighbour, Netns, Shape, TapSpec, VethPair, VethSpec,
};
use tokio::time::timeout;

use crate::afxdp::{self, FitPort};
use crate::error::PortError;
use crate::kernel::Kernel;
use crate::shaping::Pair;

/// Time for which an `ADD` waits for the queue of its host end.
///
/// The queue usually comes sooner than the record is written, and takes hundreds of milliseconds while
/// others make and remove links.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

/// The link that a kind of port has.
pub(super) enum Form {
    /// A pair with an end in the pod, and as many queues at each end.
    Pair {
        queues: u32,
        /// The AF_XDP port that is made of the pair.
        fit: Option<FitPort>,
    },
    /// With nothing in the pod: its other end is a process'.
    Device,
}

/// Wanted links of an attachment: its own, and a shaper for a limited sender.
///
/// The dispatcher is at the host end and the other end in the pod under its final name. The pod's end is
/// made there: moving one takes the kernel longer than all the rest.
pub(super) struct Links<H> {
    link: Made,
    name: String,
    hook: H,
    fit: Option<FitPort>,
    into: Option<(Shape, Discipline)>,
    out_of: Option<Pair>,
    /// Where the node's own stack finds the pod, if it routes for the network.
    reach: Option<Reach>,
}

/// How the link is made.
enum Made {
    Veth(Box<VethSpec>),
    Tap(TapSpec),
}

impl Made {
    fn of(record: &Attachment, netns: &Netns, form: Form) -> (Self, Option<FitPort>) {
        let alias = format!("{ALIAS_PREFIX}{}", record.key);
        let mtu = u32::from(record.network.mtu);
        let Form::Pair { queues, fit } = form else {
            let link = TapSpec {
                name: record.host.name.clone(),
                mtu,
                alias,
            };
            return (Self::Tap(link), None);
        };
        let mut link = VethSpec::new(&record.host.name, record.key.ifname.as_str());
        link.peer_mac = Some(record.mac.0);
        link.mtu = mtu;
        link.alias = Some(alias);
        link.queues = Some(queues);
        link.peer_netns = Some(netns.clone());
        (Self::Veth(Box::new(link)), fit)
    }

    /// Its ends; one without an end in the pod has none there.
    fn make(&self, connection: &mut impl Kernel) -> Result<VethPair, PortError> {
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

/// Facts about a pod for the node's stack.
struct Reach {
    neighbours: Vec<Neighbour>,
    v6: bool,
}

/// Indexes of what was made.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// The host end.
    pub host_end: u32,
    /// The ends of the shaper.
    pub shaper: Option<Shaper>,
}

impl<H> Links<H> {
    /// Describes the links of a record.
    pub(super) fn of(
        hook: H,
        record: &Attachment,
        netns: &Netns,
        form: Form,
        discipline: Option<Discipline>,
    ) -> Self {
        let (link, fit) = Made::of(record, netns, form);
        let (limits, mtu) = (record.limits, record.network.mtu);
        let into = limits.ingress.zip(discipline);
        let out_of = limits.egress.zip(discipline);
        Self {
            link,
            name: record.host.name.clone(),
            hook,
            fit,
            into: into.map(|(limit, discipline)| (limit.shape(mtu), discipline)),
            out_of: out_of.map(|(limit, discipline)| Pair::of(record, limit, discipline)),
            reach: record.network.by_node.then(|| Reach {
                neighbours: record.neighbours(),
                v6: record.has_v6(),
            }),
        }
    }

    /// Makes the links.
    ///
    /// They are down until the dispatcher is attached and the rate limited, so that nothing passes them.
    ///
    /// # Errors
    /// When the kernel refuses; some of them may be there then.
    pub(super) fn make(self, connection: &mut impl Kernel<Hook = H>) -> Result<Ends, PortError> {
        let name = &self.name;
        let made = self.link.make(connection)?;
        let host_end = made.host_ifindex;
        if self.reach.is_some() {
            // First: it makes the qdisc that has both sides.
            connection.attach_way_out(&self.hook, host_end)?;
        }
        connection.attach_dispatcher(&self.hook, host_end)?;
        if let Some(port) = &self.fit {
            afxdp::fit_link(connection, &self.hook, port, (host_end, made.peer_ifindex))?;
        }
        if let Some((shape, discipline)) = self.into {
            connection.shape(host_end, &shape, discipline)?;
        }
        let make = |pair: Pair| pair.make(connection, &self.hook);
        let shaper = self.out_of.map(make).transpose()?;
        if let Some(reach) = &self.reach {
            connection.listen((name, host_end), Ear::Host, reach.v6)?;
        } else {
            connection.silence(name)?;
        }
        connection.set_up(host_end)?;
        if let Some(reach) = &self.reach {
            connection.reach(host_end, &reach.neighbours)?;
        }
        Ok(Ends { host_end, shaper })
    }
}

/// Waits until the kernel has started the queue of a host end.
///
/// That is some moments after the pod's end is up, and it drops what comes before. Its first announcement
/// of the link with a carrier says so. `links` was opened while the pod's end was down.
pub(super) async fn started(mut links: LinkMonitor, ifindex: u32) -> Result<(), netdev::Error> {
    let announced = async {
        loop {
            match links.next().await? {
                LinkEvent::Changed(link) if link.ifindex == ifindex && link.carrier => break,
                // What was announced is not known, and was a while ago.
                LinkEvent::Overrun => break,
                _ => {}
            }
        }
        Ok(())
    };
    // Later is later; the first packets are not worth more of the runtime's time.
    timeout(QUEUE_PATIENCE, announced).await.unwrap_or(Ok(()))
}
