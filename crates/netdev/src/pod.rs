//! The fast path of ADD: configures a pod's link in one visit to its namespace.

use std::net::{IpAddr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::address::{Address, link_local};
use crate::connection::{Connection, Request};
use crate::error::{Error, Refusal};
use crate::link::{AddrGenMode, Link, LinkChange, Mac, check_name};
use crate::netns::Netns;
use crate::reach::RouteKind;
use crate::route::Route;
use crate::sysctl::{self, Sysctl};

/// Metric of a second route to a prefix, to which the link's index is added.
///
/// It is worse than the kernel's defaults (0, and 1024 for IPv6), and different for each link.
const SECOND_METRIC: u32 = 2048;

/// Time that the kernel has to make a pod's IPv6 addresses its own.
///
/// That takes it less than a millisecond, and more while others make and remove links: it waits for their lock.
const LOCAL_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks for that.
const LOCAL_PAUSE: Duration = Duration::from_micros(200);

/// Origin of the pod end's IPv6 link-local address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLocal {
    /// The namespace's own setting: usually the kernel makes one.
    ///
    /// It is unusable for the second or two of duplicate address detection.
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

/// Checks the name, moves the link in and configures it.
///
/// On a thread in the pod's namespace.
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
        ..LinkChange::default()
    };
    host.reconfigure(ifindex, &change)?;
    complete(&mut pod, end)
}

/// Configures a link that is there, down and bare.
///
/// On a thread in the pod's namespace.
pub(crate) fn configure(end: &PodEnd) -> Result<PlacedEnd, Error> {
    Ok(configured(end)?.1)
}

/// Configures a link as [`configure`], and waits until its addresses take packets.
///
/// On a thread in the pod's namespace; the other end is up.
pub(crate) fn start(end: &PodEnd) -> Result<PlacedEnd, Error> {
    let (mut pod, placed) = configured(end)?;
    let given = end.addresses.iter().map(|it| it.ip).filter(IpAddr::is_ipv6);
    let given = given.chain(placed.link_local.map(IpAddr::from));
    await_local(&mut pod, given)?;
    Ok(placed)
}

fn configured(end: &PodEnd) -> Result<(Connection, PlacedEnd), Error> {
    check_name(&end.name)?;
    let mut pod = Connection::open()?;
    let placed = complete(&mut pod, end)?;
    Ok((pod, placed))
}

/// Waits until these addresses have their local routes.
///
/// The kernel makes those of IPv6 some moments after it has taken the address, even where nothing is detected
/// (`addrconf_dad_work`); before, sockets are bound to the address and get no packet. Later is later: what is
/// not there in time keeps no pod from its start.
fn await_local(pod: &mut Connection, addresses: impl Iterator<Item = IpAddr>) -> Result<(), Error> {
    let end = Instant::now() + LOCAL_PATIENCE;
    for address in addresses {
        while pod.route_to(address)?.map(|found| found.kind) != Some(RouteKind::Local) {
            if Instant::now() >= end {
                return Ok(());
            }
            thread::sleep(LOCAL_PAUSE);
        }
    }
    Ok(())
}

/// MAC and MTU, settings, addresses, up, routes.
fn complete(pod: &mut Connection, end: &PodEnd) -> Result<PlacedEnd, Error> {
    let link = pod.by_name(&end.name)?.ok_or_else(|| Error::LinkVanished {
        link: end.name.as_str().into(),
    })?;
    let mac = end.mac.or(link.mac).ok_or(Error::Malformed {
        what: "IFLA_ADDRESS",
    })?;
    sysctl::write(&end.name, &end.sysctls)?;

    let link_local = (end.link_local == LinkLocal::Eui64).then(|| link_local(mac));
    let steps = steps(end, &link, link_local)?;
    let requests = steps
        .iter()
        .map(|step| step.request(link.ifindex))
        .collect();
    // One datagram for everything. The kernel goes on after a refusal, which does no harm: the
    // first one is reported and the caller removes the link.
    for (answer, step) in pod.ask_all(requests)?.into_iter().zip(steps) {
        match (answer, step) {
            (Ok(_), _) => {}
            // Another link of the pod leads there too. The first one wins, as with the reference
            // plugins; this one is there for whoever binds to the link, and when the first goes.
            (Err(refusal), Step::Route(route)) if refusal.errno() == Errno::EXIST => {
                let metric = Some(SECOND_METRIC.saturating_add(link.ifindex));
                pod.add_route(&Route {
                    metric,
                    ifindex: link.ifindex,
                    ..route
                })?;
            }
            (Err(refusal), step) if step.tolerates(&refusal) => {}
            (Err(refusal), step) => return Err(step.refused(&end.name, refusal)),
        }
    }
    Ok(PlacedEnd {
        ifindex: link.ifindex,
        mac,
        mtu: end.mtu.unwrap_or(link.mtu),
        link_local,
    })
}

/// One request of the batch and what it is for.
enum Step {
    Change(LinkChange),
    Address(Address),
    Route(Route),
}

impl Step {
    fn request(&self, ifindex: u32) -> Request {
        match self {
            Self::Change(change) => change.request(ifindex),
            Self::Address(address) => address.request(ifindex),
            Self::Route(route) => Route { ifindex, ..*route }.request(),
        }
    }

    /// Reports whether the refusal is harmless: without IPv6 a link needs no mode.
    fn tolerates(&self, refusal: &Refusal) -> bool {
        matches!(
            self,
            Self::Change(LinkChange {
                addr_gen_mode: Some(_),
                ..
            })
        ) && refusal.errno() == Errno::AFNOSUPPORT
    }

    fn refused(self, name: &str, source: Refusal) -> Error {
        match self {
            Self::Change(change) => Error::ChangeLink {
                link: name.into(),
                change: change.to_string(),
                source,
            },
            Self::Address(address) => address.refused(name.into(), source),
            Self::Route(route) => route.refused(name.into(), source),
        }
    }
}

/// Lists the steps that configure a link: addresses, up, routes.
///
/// Addresses come before up, because the announcements of `arp_notify` and `ndisc_notify` go out when the
/// link comes up; routes last, because they need it up.
fn steps(end: &PodEnd, link: &Link, link_local: Option<Ipv6Addr>) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::with_capacity(4 + end.addresses.len() + end.routes.len());
    let change = LinkChange {
        mac: end.mac.filter(|mac| link.mac != Some(*mac)),
        mtu: end.mtu.filter(|mtu| link.mtu != *mtu),
        alias: end.alias.clone(),
        ..LinkChange::default()
    };
    change.check()?;
    if change.mac.is_some() || change.mtu.is_some() || change.alias.is_some() {
        steps.push(Step::Change(change));
    }
    // On its own, so that a kernel without IPv6 refuses nothing else with it.
    if end.link_local != LinkLocal::Kernel {
        let addr_gen_mode = Some(AddrGenMode::None);
        steps.push(Step::Change(LinkChange {
            addr_gen_mode,
            ..LinkChange::default()
        }));
    }
    steps.extend(link_local.map(|ip| Step::Address(Address::new(ip.into(), 64))));
    steps.extend(end.addresses.iter().copied().map(Step::Address));
    steps.push(Step::Change(LinkChange::updown(true)));
    steps.extend(end.routes.iter().copied().map(Step::Route));
    Ok(steps)
}
