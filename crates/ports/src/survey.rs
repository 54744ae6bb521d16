//! The links of the node that are named like those of ports.

use std::collections::{BTreeMap, BTreeSet};

use book::record::{Attachment, HostEnd, State};
use host::{ALIAS_PREFIX, FAR_PREFIX, HOST_PREFIX, NEAR_PREFIX};
use netdev::{Link, LinkFilter, Netlink};

use crate::error::PortError;

/// Links of the node, as they were at one moment.
#[derive(Debug, Default)]
pub struct Survey {
    /// Every link of ours, by name.
    ours: BTreeMap<String, Seen>,
    /// Every link named like one of ours, whatever it is.
    named: BTreeMap<String, Seen>,
    /// Indexes of all links that could have been ports.
    all: BTreeSet<u32>,
}

/// A link that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its index.
    pub ifindex: u32,
    /// True when its other end is up.
    pub carrier: bool,
    /// True when it is up itself.
    pub up: bool,
    /// Index of the other end of a veth.
    pub peer: Option<u32>,
}

impl Survey {
    /// Takes the names of links of ours, and their indexes.
    pub fn of(ours: impl IntoIterator<Item = (String, Seen)>) -> Self {
        let ours: BTreeMap<String, Seen> = ours.into_iter().collect();
        let all = ours.values().map(|link| link.ifindex).collect();
        let named = ours.clone();
        Self { ours, named, all }
    }

    /// Looks at the links of the node.
    pub(super) async fn make(netlink: &Netlink) -> Result<Self, PortError> {
        let links = netlink.list(LinkFilter::default()).await?;
        let entry = |link: &Link| (link.name.clone(), Seen::from(link));
        let named = links.iter().filter(|link| is_named(link));
        let could_be = || links.iter().filter(|link| could_be_port(link));
        Ok(Self {
            ours: could_be().filter(|link| is_ours(link)).map(entry).collect(),
            named: named.map(entry).collect(),
            all: could_be().map(|link| link.ifindex).collect(),
        })
    }

    /// The link of this name, if it is named like one of ours.
    pub(super) fn named(&self, name: &str) -> Option<Seen> {
        self.named.get(name).copied()
    }

    /// True when there is a link of this index, whatever it is.
    pub(super) fn has_index(&self, ifindex: u32) -> bool {
        self.all.contains(&ifindex)
    }

    /// Links that none of these names is of.
    pub(super) fn strays(&self, known: &BTreeSet<String>) -> Vec<(String, u32)> {
        let strays = self.ours.iter().filter(|(name, _)| !known.contains(*name));
        strays
            .map(|(name, link)| (name.clone(), link.ifindex))
            .collect()
    }

    /// True when the host end of a record is there.
    pub fn has(&self, host: &HostEnd) -> bool {
        let link = self.ours.get(&host.name);
        link.is_some_and(|link| link.ifindex == host.ifindex)
    }

    /// True when neither the link nor the pod's namespace is there any more.
    ///
    /// Nobody will ever use the attachment then. With the namespace there, the runtime is still to say
    /// `DEL`.
    pub fn is_dead(&self, record: &Attachment) -> bool {
        // A device without an end in the pod stays when the pod goes.
        let may_be = record.is_switched() || !self.has(&record.host);
        may_be && record.sandbox.is_gone()
    }

    /// The finished record of an attachment that is being made, if nothing is missing.
    ///
    /// Its host end has a carrier when the pod's end is up, and the request that puts that up does all the
    /// rest too.
    pub fn whole(&self, record: &Attachment) -> Option<Attachment> {
        let link = self.ours.get(&record.host.name)?;
        let is_whole =
            record.state == State::Adding && record.limits.egress.is_none() && link.carrier;
        is_whole.then(|| Attachment {
            state: State::Added,
            host: HostEnd {
                ifindex: link.ifindex,
                ..record.host.clone()
            },
            ..record.clone()
        })
    }
}

impl From<&Link> for Seen {
    fn from(link: &Link) -> Self {
        Self {
            ifindex: link.ifindex,
            carrier: link.carrier,
            up: link.up,
            peer: link.peer_ifindex,
        }
    }
}

fn could_be_port(link: &Link) -> bool {
    matches!(link.kind.as_deref(), Some("veth" | "tun"))
}

fn is_named(link: &Link) -> bool {
    let mut prefixes = [HOST_PREFIX, NEAR_PREFIX, FAR_PREFIX].into_iter();
    prefixes.any(|prefix| link.name.starts_with(prefix))
}

fn is_ours(link: &Link) -> bool {
    let alias = link.alias.as_deref().unwrap_or_default();
    // The far end of a shaper goes with the near one.
    let mut prefixes = [HOST_PREFIX, NEAR_PREFIX].into_iter();
    prefixes.any(|prefix| link.name.starts_with(prefix)) && alias.starts_with(ALIAS_PREFIX)
}
