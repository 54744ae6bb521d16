//! The VXLAN device whose packets name their tunnel themselves
//! (`ip link add NAME type vxlan external`; drivers/net/vxlan).

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};

use crate::connection::{Connection, Request};
use crate::error::Error;
use crate::link::{AddrGenMode, Link, LinkChange, check_name};

/// The device as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VxlanSpec {
    /// Interface name.
    pub name: String,
    /// UDP port to send to and to listen on.
    pub port: u16,
    /// MTU, bytes.
    pub mtu: u32,
    /// `ifalias`.
    pub alias: String,
}

/// Returns the name of an incomplete device, one byte longer than its final name.
pub fn unfinished(name: &str) -> String {
    format!("{name}+")
}

impl Connection {
    /// Makes the device, down; returns its index.
    ///
    /// It learns nothing, answers nothing, and takes tunnels of both families, those over IPv6 without a
    /// checksum too (RFC 6935).
    ///
    /// The kernel takes no `ifalias` with a new device, so the device gets its name last: one of this name
    /// without its alias would be that of somebody else after a crash. What a crash left of an earlier
    /// call is removed.
    ///
    /// # Errors
    /// [`Error::CreateVxlan`], [`Error::is_exists`] if the name is taken; nothing is left behind. A
    /// port that is in use is only noticed when the device is set up (`EADDRINUSE`).
    pub fn create_vxlan(&mut self, spec: &VxlanSpec) -> Result<u32, Error> {
        let unfinished = unfinished(&spec.name);
        check_name(&unfinished)?;
        self.delete_by_name(&unfinished)?;
        let create = Request::new(create(spec, &unfinished), NLM_F_CREATE | NLM_F_EXCL);
        let answers = self.ask_all(vec![create])?;
        if let Some(Err(source)) = answers.into_iter().next() {
            return Err(Error::CreateVxlan {
                name: spec.name.clone(),
                source,
            });
        }
        let Link { ifindex, .. } =
            self.by_name(&unfinished)?
                .ok_or_else(|| Error::LinkVanished {
                    link: unfinished.as_str().into(),
                })?;
        let change = LinkChange {
            alias: Some(spec.alias.clone()),
            addr_gen_mode: Some(AddrGenMode::None),
            ..LinkChange::default()
        };
        let name = LinkChange {
            name: Some(spec.name.clone()),
            ..LinkChange::default()
        };
        let finished = self.reconfigure(ifindex, &change);
        if let Err(error) = finished.and_then(|()| self.reconfigure(ifindex, &name)) {
            // The first error is the one to tell.
            let _ = self.delete(ifindex);
            return Err(error);
        }
        Ok(ifindex)
    }
}

fn create(spec: &VxlanSpec, name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Mtu(spec.mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vxlan),
            LinkInfo::Data(InfoData::Vxlan(vec![
                InfoVxlan::CollectMetadata(true),
                InfoVxlan::Learning(false),
                InfoVxlan::Port(spec.port),
                InfoVxlan::UDPZeroCsumTX(true),
                InfoVxlan::UDPZeroCsumRX(true),
            ])),
        ]),
    ];
    RouteNetlinkMessage::NewLink(message)
}
