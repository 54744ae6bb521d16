//! The fast path of ADD: one visit to the pod's namespace moves the link in and makes it ready.

use std::net::Ipv6Addr;

use crate::address::{Address, link_local};
use crate::connection::{Connection, Request};
use crate::error::{Error, Refusal};
use crate::link::{AddrGenMode, Link, LinkChange, Mac, check_name};
use crate::netns::Netns;
use crate::route::Route;
use crate::sysctl::{self, Sysctl};

/// What becomes of the pod end's IPv6 link-local address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLocal {
    /// As the namespace has it: usually made by the kernel, unusable for the second or two of
    /// duplicate address detection.
    #[default]
    Kernel,
    /// The EUI-64 one ([`link_local`]), usable at once.
    Eui64,
    /// None, as for a pod without IPv6.
    Absent,
}

/// The pod end of a veth as it shall be.
#[derive(Clone, Debug)]
pub struct PodEnd {
    /// Interface name in the pod (`CNI_IFNAME`).
    pub name: String,
    /// MAC; `None`: as it is.
    pub mac: Option<Mac>,
    /// MTU, bytes; `None`: as it is.
    pub mtu: Option<u32>,
    /// `ifalias`; `None`: as it is.
    pub alias: Option<String>,
    /// Addresses, added in this order.
    pub addresses: Vec<Address>,
    /// IPv6 link-local address.
    pub link_local: LinkLocal,
    /// Routes out of this link, added in this order once it is up.
    pub routes: Vec<Route>,
    /// Settings, written before the first address and before the link comes up.
    pub sysctls: Vec<Sysctl>,
}

impl PodEnd {
    /// A link of that name and nothing else.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            mac: None,
            mtu: None,
            alias: None,
            addresses: Vec::new(),
            link_local: LinkLocal::Kernel,
            routes: Vec::new(),
            sysctls: Vec::new(),
        }
    }

    fn addr_gen_mode(&self) -> Option<AddrGenMode> {
        match self.link_local {
            LinkLocal::Kernel => None,
            LinkLocal::Eui64 | LinkLocal::Absent => Some(AddrGenMode::None),
        }
    }
}

/// The pod end as it came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedEnd {
    /// Its index in the pod's namespace.
    pub ifindex: u32,
    /// Its MAC.
    pub mac: Mac,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// The link-local address we gave it ([`LinkLocal::Eui64`]).
    pub link_local: Option<Ipv6Addr>,
}

/// On a thread in the pod's namespace: checks the name, moves the link in, configures it.
pub(crate) fn place(
    host: &mut Connection,
    netns: &Netns,
    ifindex: u32,
    end: &PodEnd,
) -> Result<PlacedEnd, Error> {
    check_name(&end.name)?;
    let mut pod = Connection::open()?;
    // The kernel moves first and renames then: with the name taken the link would be stranded.
    if let Some(Link { ifindex, .. }) = pod.by_name(&end.name)? {
        return Err(Error::NameTaken {
            name: end.name.clone(),
            ifindex,
        });
    }
    let change = LinkChange {
        netns: Some(netns.clone()),
        name: Some(end.name.clone()),
        mac: end.mac,
        mtu: end.mtu,
        alias: end.alias.clone(),
        up: None,
        addr_gen_mode: end.addr_gen_mode(),
    };
    host.reconfigure(ifindex, &change)?;
    complete(&mut pod, end)
}

/// On a thread in the pod's namespace: configures a link that is there, down and bare.
pub(crate) fn configure(end: &PodEnd) -> Result<PlacedEnd, Error> {
    check_name(&end.name)?;
    let mut pod = Connection::open()?;
    let link = pod.by_name(&end.name)?.ok_or_else(|| Error::LinkVanished {
        link: end.name.as_str().into(),
    })?;
    let change = LinkChange {
        mac: end.mac,
        mtu: end.mtu,
        alias: end.alias.clone(),
        addr_gen_mode: end.addr_gen_mode(),
        ..LinkChange::default()
    };
    pod.reconfigure(link.ifindex, &change)?;
    complete(&mut pod, end)
}

/// Settings, addresses, up, routes.
fn complete(pod: &mut Connection, end: &PodEnd) -> Result<PlacedEnd, Error> {
    let link = pod.by_name(&end.name)?.ok_or_else(|| Error::LinkVanished {
        link: end.name.as_str().into(),
    })?;
    let mac = link.mac.ok_or(Error::Malformed {
        what: "IFLA_ADDRESS",
    })?;
    sysctl::write(&end.name, &end.sysctls)?;

    let link_local = (end.link_local == LinkLocal::Eui64).then(|| link_local(mac));
    let steps = steps(end, link.ifindex, link_local);
    let (requests, failures): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
    // One datagram for everything. The kernel goes on after a refusal, which does no harm: the
    // first one is reported and the caller removes the link.
    for (answer, step) in pod.ask_all(requests)?.into_iter().zip(failures) {
        answer.map_err(|refusal| step.refused(&end.name, refusal))?;
    }
    Ok(PlacedEnd {
        ifindex: link.ifindex,
        mac,
        mtu: link.mtu,
        link_local,
    })
}

/// What a request was for.
enum Step {
    Address(Address),
    Up,
    Route(Route),
}

impl Step {
    fn refused(self, name: &str, source: Refusal) -> Error {
        match self {
            Self::Address(address) => address.refused(name.into(), source),
            Self::Up => Error::ChangeLink {
                link: name.into(),
                change: LinkChange::updown(true).to_string(),
                source,
            },
            Self::Route(route) => route.refused(name.into(), source),
        }
    }
}

/// Addresses first, for the announcements of `arp_notify` and `ndisc_notify` go out when the link
/// comes up; routes last, for they need it up.
fn steps(end: &PodEnd, ifindex: u32, link_local: Option<Ipv6Addr>) -> Vec<(Request, Step)> {
    let link_local = link_local.map(|ip| Address::new(ip.into(), 64));
    let addresses = link_local.iter().chain(&end.addresses);
    let mut steps: Vec<_> = addresses
        .map(|address| (address.request(ifindex), Step::Address(*address)))
        .collect();
    steps.push((LinkChange::updown(true).request(ifindex), Step::Up));
    steps.extend(end.routes.iter().map(|route| {
        let route = Route { ifindex, ..*route };
        (route.request(), Step::Route(route))
    }));
    steps
}
