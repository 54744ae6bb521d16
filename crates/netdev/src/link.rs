//! Links: making, changing, removing and looking at them.

mod group;
mod message;

use std::fmt;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;

use crate::connection::{Connection, Message, Request};
use crate::error::{Error, LinkId, Refusal};
use crate::netns::Netns;
use crate::wire;

/// An Ethernet address, 6 bytes in wire order.
pub type Mac = [u8; 6];

/// `IFNAMSIZ` without the NUL.
const NAME_MAX: usize = 15;
/// `IFALIASZ` without the NUL.
const ALIAS_MAX: usize = 255;

/// A link as the kernel shows it (`RTM_NEWLINK`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index in the namespace it was looked up in.
    pub ifindex: u32,
    /// Interface name.
    pub name: String,
    /// Hardware address; `None` where it is not 6 bytes long.
    pub mac: Option<Mac>,
    /// Bytes of payload above the Ethernet header.
    pub mtu: u32,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// The link takes frames for every MAC address, as it was told (`IFF_PROMISC`).
    pub promiscuous: bool,
    /// The other side is there (`IFLA_CARRIER`); for a veth: both ends are up.
    pub carrier: bool,
    /// `veth`, `vxlan`, …; `None` for hardware and the loopback.
    pub kind: Option<String>,
    /// `IFLA_LINK`: for a veth the index of its peer, in the peer's namespace.
    pub peer_ifindex: Option<u32>,
    /// Id of the peer's namespace in this one; `None` if it is the same one.
    pub link_netnsid: Option<i32>,
    /// `IFLA_MASTER`: the bridge, bond or VRF that it is a part of.
    pub controller_ifindex: Option<u32>,
    /// `ifalias`.
    pub alias: Option<String>,
    /// The interface group (`IFLA_GROUP`); 0 by default.
    pub group: u32,
}

impl Link {
    /// Reads the body of an `RTM_NEWLINK` or `RTM_DELLINK`.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        // struct ifinfomsg: family, pad, type (u16), index (i32), flags, change.
        let ifindex = wire::u32_at(body, 4)?;
        let flags = wire::u32_at(body, 8)?;
        let mut link = Self {
            ifindex,
            name: String::new(),
            mac: None,
            mtu: 0,
            up: flags & message::IFF_UP != 0,
            promiscuous: flags & message::IFF_PROMISC != 0,
            carrier: false,
            kind: None,
            peer_ifindex: None,
            link_netnsid: None,
            controller_ifindex: None,
            alias: None,
            group: 0,
        };
        for (kind, value) in wire::attributes(body.get(message::IFINFOMSG..)?) {
            match kind {
                message::IFLA_ADDRESS => link.mac = value.try_into().ok(),
                message::IFLA_IFNAME => link.name = wire::string(value)?,
                message::IFLA_MTU => link.mtu = wire::u32_at(value, 0)?,
                message::IFLA_LINK => link.peer_ifindex = wire::u32_at(value, 0),
                message::IFLA_MASTER => link.controller_ifindex = wire::u32_at(value, 0),
                message::IFLA_LINKINFO => {
                    link.kind = wire::attributes(value)
                        .find(|(kind, _)| *kind == message::IFLA_INFO_KIND)
                        .and_then(|(_, value)| wire::string(value));
                }
                message::IFLA_GROUP => link.group = wire::u32_at(value, 0)?,
                message::IFLA_IFALIAS => link.alias = wire::string(value),
                message::IFLA_CARRIER => link.carrier = value.first().is_some_and(|up| *up != 0),
                message::IFLA_LINK_NETNSID => link.link_netnsid = wire::i32_at(value, 0),
                _ => {}
            }
        }
        (!link.name.is_empty()).then_some(link)
    }
}

/// Which links [`Connection::list`] returns; an empty filter returns all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFilter {
    /// Only links of this kind (`IFLA_INFO_KIND`); the kernel filters.
    pub kind: Option<String>,
    /// Only names that start so.
    pub name_prefix: Option<String>,
    /// Only links whose alias starts so.
    pub alias_prefix: Option<String>,
}

impl LinkFilter {
    fn admits(&self, link: &Link) -> bool {
        let starts = |text: Option<&str>, prefix: &Option<String>| {
            prefix
                .as_ref()
                .is_none_or(|prefix| text.is_some_and(|text| text.starts_with(prefix)))
        };
        // Checked again here: before 5.0 the kernel took the kind for a hint.
        self.kind
            .as_ref()
            .is_none_or(|kind| link.kind.as_ref() == Some(kind))
            && starts(Some(&link.name), &self.name_prefix)
            && starts(link.alias.as_deref(), &self.alias_prefix)
    }
}

/// A veth pair to be made: both ends down, and complete from the first moment.
///
/// No reader, udev included, sees an end without its final MAC.
#[derive(Clone, Debug)]
pub struct VethSpec {
    /// Name of the end that stays.
    pub host_name: String,
    /// Its MAC; `None`: random.
    pub host_mac: Option<Mac>,
    /// Name of the other end.
    pub peer_name: String,
    /// Its MAC; `None`: random.
    pub peer_mac: Option<Mac>,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// `ifalias` of the host end.
    pub alias: Option<String>,
    /// Transmit and receive queues of each end; `None`: the kernel's choice.
    ///
    /// Newer kernels choose one per possible CPU.
    pub queues: Option<u32>,
    /// Namespace in which the peer is made; `None`: the connection's own.
    ///
    /// `peer_name` is then its final name, refused by the kernel if it is taken there, and no move is
    /// needed.
    pub peer_netns: Option<Netns>,
}

impl VethSpec {
    /// A pair with random MACs and MTU 1500.
    pub fn new(host_name: &str, peer_name: &str) -> Self {
        Self {
            host_name: host_name.to_owned(),
            host_mac: None,
            peer_name: peer_name.to_owned(),
            peer_mac: None,
            mtu: 1500,
            alias: None,
            queues: None,
            peer_netns: None,
        }
    }
}

/// The indexes of a new pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VethPair {
    /// The host end, in the connection's namespace.
    pub host_ifindex: u32,
    /// The other end, in its namespace.
    pub peer_ifindex: u32,
}

/// Mode of a link's IPv6 link-local address (`IFLA_INET6_ADDR_GEN_MODE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrGenMode {
    /// From the MAC, with duplicate address detection.
    Eui64,
    /// Not at all.
    None,
}

/// Changes to one link, in one request.
///
/// The kernel carries them out in this order: move, MAC, MTU, rename, alias, up or down, address
/// generation mode.
#[derive(Clone, Debug, Default)]
pub struct LinkChange {
    /// Namespace to move to, which takes 15 ms and more.
    ///
    /// The link gets a new index there if its own is taken, and all its settings of IPv4 and IPv6 start
    /// from the defaults of that namespace.
    pub netns: Option<Netns>,
    /// Rename.
    pub name: Option<String>,
    /// New MAC.
    pub mac: Option<Mac>,
    /// New MTU, bytes.
    pub mtu: Option<u32>,
    /// New `ifalias`; empty removes it.
    pub alias: Option<String>,
    /// Set up or down. Not together with `netns`.
    pub up: Option<bool>,
    /// Take in frames for every MAC address, or no longer.
    pub promiscuous: Option<bool>,
    /// Link-local address generation; skipped where the kernel has no IPv6.
    pub addr_gen_mode: Option<AddrGenMode>,
}

impl LinkChange {
    /// Only up or only down.
    pub fn updown(up: bool) -> Self {
        Self {
            up: Some(up),
            ..Self::default()
        }
    }

    /// Checks the strings.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        if let Some(alias) = &self.alias {
            check_alias(alias)?;
        }
        Ok(())
    }

    pub(crate) fn request(&self, ifindex: u32) -> Request {
        Request::new(message::change(ifindex, self), 0)
    }
}

/// The change as errors show it, in the words of `ip link set`.
impl fmt::Display for LinkChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if let Some(netns) = &self.netns {
            words.push(format!("netns {}", netns.identity()));
        }
        if let Some(name) = &self.name {
            words.push(format!("name {name}"));
        }
        if let Some([a, b, c, d, e, g]) = self.mac {
            words.push(format!(
                "address {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"
            ));
        }
        if let Some(mtu) = self.mtu {
            words.push(format!("mtu {mtu}"));
        }
        if let Some(alias) = &self.alias {
            words.push(format!("alias {alias:?}"));
        }
        if let Some(up) = self.up {
            words.push(if up { "up" } else { "down" }.to_owned());
        }
        if let Some(promiscuous) = self.promiscuous {
            words.push(
                if promiscuous {
                    "promisc on"
                } else {
                    "promisc off"
                }
                .to_owned(),
            );
        }
        match self.addr_gen_mode {
            Some(AddrGenMode::Eui64) => words.push("addrgenmode eui64".to_owned()),
            Some(AddrGenMode::None) => words.push("addrgenmode none".to_owned()),
            None => {}
        }
        f.write_str(&words.join(", "))
    }
}

/// Checks a name by the kernel's rules (`dev_valid_name`), and for `%`.
///
/// It has 1 to 15 bytes, is not `.` or `..`, and has no `/`, `:` or white space. The kernel reads a name
/// with `%` as a pattern.
///
/// # Errors
/// [`Error::InvalidName`] with the rule.
pub fn check_name(name: &str) -> Result<(), Error> {
    let forbidden = |c: char| c.is_ascii_whitespace() || c.is_control() || "/:%\x0b".contains(c);
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_MAX {
        "it is longer than 15 bytes"
    } else if name == "." || name == ".." {
        "it is a directory name"
    } else if name.contains(forbidden) {
        "it contains '/', ':', '%', white space or a control character"
    } else {
        return Ok(());
    };
    Err(Error::InvalidName {
        name: name.to_owned(),
        reason,
    })
}

/// True unless no link of the calling thread's namespace has this name.
///
/// It does not wait for changes of links that are under way, as all requests by netlink do.
pub fn may_be_there(name: &str) -> bool {
    !matches!(
        nix::net::if_::if_nametoindex(name),
        Err(nix::errno::Errno::ENODEV)
    )
}

fn check_alias(alias: &str) -> Result<(), Error> {
    if alias.len() > ALIAS_MAX || alias.contains('\0') {
        return Err(Error::InvalidAlias {
            alias: alias.to_owned(),
        });
    }
    Ok(())
}

impl Connection {
    /// Makes a veth pair; both ends are down.
    ///
    /// The kernel generates no IPv6 link-local address on the host end.
    ///
    /// # Errors
    /// [`Error::CreateVeth`], [`Error::is_exists`] if one of the names is taken; nothing is left
    /// behind.
    pub fn create_veth(&mut self, spec: &VethSpec) -> Result<VethPair, Error> {
        check_name(&spec.host_name)?;
        check_name(&spec.peer_name)?;
        if let Some(alias) = &spec.alias {
            check_alias(alias)?;
        }
        // The look-up rides along: it is harmless if the creation is refused.
        let answers = self.ask_all(vec![
            Request::new(message::create_veth(spec), NLM_F_CREATE | NLM_F_EXCL),
            Request::new(message::get_by_name(&spec.host_name), 0),
        ])?;
        let mut answers = answers.into_iter();
        if let Some(Err(source)) = answers.next() {
            return Err(Error::CreateVeth {
                host: spec.host_name.clone(),
                peer: spec.peer_name.clone(),
                source,
            });
        }
        let host = answers
            .next()
            .and_then(Result::ok)
            .and_then(|messages| Link::parse(&messages.first()?.body))
            .ok_or_else(|| Error::LinkVanished {
                link: spec.host_name.as_str().into(),
            })?;
        // Creation ignores an alias and refuses AF_SPEC (5.10 to 6.18), so they come second.
        let change = LinkChange {
            alias: spec.alias.clone(),
            addr_gen_mode: Some(AddrGenMode::None),
            ..LinkChange::default()
        };
        if let Err(error) = self.reconfigure(host.ifindex, &change) {
            // The first error is the one to tell.
            let _ = self.delete(host.ifindex);
            return Err(error);
        }
        let peer_ifindex = host
            .peer_ifindex
            .ok_or(Error::Malformed { what: "IFLA_LINK" })?;
        Ok(VethPair {
            host_ifindex: host.ifindex,
            peer_ifindex,
        })
    }

    /// Changes a link, in one request or two.
    ///
    /// Two are needed if it is to come up with another address generation mode, because the kernel would
    /// apply the mode too late.
    ///
    /// If a move is refused because the new name is taken there, the link may have been moved
    /// already: look before ([`Connection::name_is_free`]), as [`PodEnd`](crate::PodEnd) does.
    ///
    /// # Errors
    /// [`Error::ChangeLink`], [`Error::is_gone`] if there is no such link;
    /// [`Error::InvalidChange`] for `up` together with `netns`.
    pub fn reconfigure(&mut self, ifindex: u32, change: &LinkChange) -> Result<(), Error> {
        change.check()?;
        if change.netns.is_some() && change.up.is_some() {
            return Err(Error::InvalidChange {
                link: ifindex.into(),
                reason: "move it first, then set it up or down from its new namespace",
            });
        }
        if change.up == Some(true) && change.addr_gen_mode.is_some() {
            self.set_link(
                ifindex,
                &LinkChange {
                    up: None,
                    ..change.clone()
                },
            )?;
            return self.set_link(ifindex, &LinkChange::updown(true));
        }
        self.set_link(ifindex, change)
    }

    fn set_link(&mut self, ifindex: u32, change: &LinkChange) -> Result<(), Error> {
        let first = self.ask(change.request(ifindex))?;
        let answer = match first {
            // No IPv6 on this link, so nothing to generate either. The kernel checks this before
            // it changes anything.
            Err(refusal)
                if refusal.errno() == Errno::AFNOSUPPORT && change.addr_gen_mode.is_some() =>
            {
                let change = LinkChange {
                    addr_gen_mode: None,
                    ..change.clone()
                };
                self.ask(change.request(ifindex))?
            }
            answer => answer,
        };
        answer.map(drop).map_err(|source| Error::ChangeLink {
            link: ifindex.into(),
            change: change.to_string(),
            source,
        })
    }

    /// Sets a link up.
    ///
    /// # Errors
    /// [`Error::ChangeLink`].
    pub fn set_up(&mut self, ifindex: u32) -> Result<(), Error> {
        self.reconfigure(ifindex, &LinkChange::updown(true))
    }

    /// Deletes a link, and with a veth its peer; `false` if there was none.
    ///
    /// It takes milliseconds: the kernel waits for RCU grace periods.
    ///
    /// # Errors
    /// [`Error::DeleteLink`].
    pub fn delete(&mut self, ifindex: u32) -> Result<bool, Error> {
        // ifi_index 0 makes the kernel look for other attributes, and with none it is EINVAL.
        let answer = self.ask(Request::new(message::delete(ifindex), 0))?;
        Self::deleted(answer.map(drop), || ifindex.into())
    }

    /// Deletes the link of that name, safe against an index that was used again.
    ///
    /// # Errors
    /// [`Error::DeleteLink`].
    pub fn delete_by_name(&mut self, name: &str) -> Result<bool, Error> {
        check_name(name)?;
        let answer = self.ask(Request::new(message::delete_by_name(name), 0))?;
        Self::deleted(answer.map(drop), || name.into())
    }

    fn deleted(answer: Result<(), Refusal>, link: impl FnOnce() -> LinkId) -> Result<bool, Error> {
        match answer {
            Ok(()) => Ok(true),
            Err(refusal) if refusal.errno() == Errno::NODEV => Ok(false),
            Err(source) => Err(Error::DeleteLink {
                link: link(),
                source,
            }),
        }
    }

    /// The link of that name (or alternative name), if there is one.
    ///
    /// # Errors
    /// [`Error::GetLink`].
    pub fn by_name(&mut self, name: &str) -> Result<Option<Link>, Error> {
        check_name(name)?;
        self.get(message::get_by_name(name), || name.into())
    }

    /// The link of that index, if there is one.
    ///
    /// # Errors
    /// [`Error::GetLink`].
    pub fn by_index(&mut self, ifindex: u32) -> Result<Option<Link>, Error> {
        self.get(message::get_by_index(ifindex), || ifindex.into())
    }

    fn get(
        &mut self,
        request: RouteNetlinkMessage,
        link: impl FnOnce() -> LinkId,
    ) -> Result<Option<Link>, Error> {
        match self.ask(Request::new(request, 0))? {
            Ok(messages) => messages
                .first()
                .and_then(|message| Link::parse(&message.body))
                .ok_or(Error::Malformed {
                    what: "RTM_NEWLINK",
                })
                .map(Some),
            Err(refusal) if refusal.errno() == Errno::NODEV => Ok(None),
            Err(source) => Err(Error::GetLink {
                link: link(),
                source,
            }),
        }
    }

    /// True if no link has that name.
    ///
    /// # Errors
    /// [`Error::GetLink`].
    pub fn name_is_free(&mut self, name: &str) -> Result<bool, Error> {
        Ok(self.by_name(name)?.is_none())
    }

    /// The links that pass the filter, in the kernel's order.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::DumpInterrupted`].
    pub fn list(&mut self, filter: &LinkFilter) -> Result<Vec<Link>, Error> {
        let answer = self.dump("links", &message::list(filter.kind.as_deref()))?;
        Ok(answer
            .iter()
            .filter(|message| message.kind == wire::RTM_NEWLINK)
            .filter_map(|Message { body, .. }| Link::parse(body))
            .filter(|link| filter.admits(link))
            .collect())
    }
}

#[cfg(test)]
mod tests;
