//! Translate between the addresses of Services and those of their endpoints.
//!
//! A Service of a network is an address that no port has (`ENDPOINT_SERVICE`). The node of a client replaces it by the
//! address of one of the Service's backends, and does the reverse for what comes back, before it delivers it. Everything in
//! between, policies among it, sees the backend.
//!
//! All of it is a function of the packet and the tables ([`ServiceTables`]), which an engine looks up by its own means; it
//! carries out the difference between the tuples in [`Work`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Ip16;

mod entry;
mod quoted;
mod tables;
mod translate;

pub use self::entry::{
    BACK, BACK_TO_SELF, Found, TO_BACKEND, TO_SELF, Target, Translation, TranslationBucket,
};
pub use self::quoted::{Outer, quoted};
pub use self::tables::ServiceTables;
pub use self::translate::{Client, Work, reply, request};

/// The Service has endpoints, but none that clients of this node may use.
///
/// Its packets are dropped, and nobody is told (`internalTrafficPolicy: Local`).
pub const SERVICE_ELSEWHERE: u32 = 1 << 0;

/// Key of `SERVICES`: a port of a Service.
#[repr(C)]
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
pub struct ServiceKey {
    /// Network.
    pub network: u32,
    /// Address of the Service.
    pub ip: Ip16,
    /// Port.
    pub port: u16,
    /// IP protocol: TCP or UDP.
    pub protocol: u8,
    /// Zero.
    pub reserved: u8,
}

const _: () = assert!(size_of::<ServiceKey>() == 24);

impl ServiceKey {
    /// Of no Service.
    pub const EMPTY: Self = Self {
        network: 0,
        ip: Ip16::NONE,
        port: 0,
        protocol: 0,
        reserved: 0,
    };
}

/// A port of a Service.
///
/// *Written by* the agent, after the backends of its set and before those of the set that it had are removed. *Read by*
/// `service`. *Lifetime*: as long as the Service has the port.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Service {
    /// Number of the set of its backends, from 1.
    pub set: u32,
    /// Backends of the set.
    pub count: u32,
    /// Seconds for which a client keeps its backend; 0 for no affinity.
    pub affinity_s: u32,
    /// `SERVICE_*` flags.
    pub flags: u32,
}

const _: () = assert!(size_of::<Service>() == 16);

/// Key of `BACKENDS`: a place in a set.
#[repr(C)]
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
pub struct BackendKey {
    /// Set.
    pub set: u32,
    /// Place, from 0 to less than [`Service::count`].
    pub index: u32,
}

const _: () = assert!(size_of::<BackendKey>() == 8);

/// An endpoint of a Service.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Backend {
    /// Address.
    pub ip: Ip16,
    /// Port.
    pub port: u16,
    /// Zero.
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<Backend>() == 24);

impl Backend {
    /// An endpoint at this address and port.
    pub const fn new(ip: Ip16, port: u16) -> Self {
        Self {
            ip,
            port,
            reserved: [0; 6],
        }
    }
}

/// Key of `MEMBERS`: an endpoint of a Service's port, in any set.
///
/// A datagram goes on to the backend of those before it as long as this is there. The value is a `u32` of 1.
#[repr(C)]
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
pub struct MemberKey {
    /// Network.
    pub network: u32,
    /// Address of the Service.
    pub service: Ip16,
    /// Address of the endpoint.
    pub backend: Ip16,
    /// Port of the Service.
    pub service_port: u16,
    /// Port of the endpoint.
    pub backend_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<MemberKey>() == 44);

impl MemberKey {
    /// Of no endpoint.
    pub const EMPTY: Self = Self {
        network: 0,
        service: Ip16::NONE,
        backend: Ip16::NONE,
        service_port: 0,
        backend_port: 0,
        protocol: 0,
        reserved: [0; 3],
    };
}

/// Key of `AFFINITIES`: a client of a Service's port.
#[repr(C)]
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
pub struct ClientKey {
    /// The Service's port.
    pub service: ServiceKey,
    /// Address of the client.
    pub client: Ip16,
}

const _: () = assert!(size_of::<ClientKey>() == 40);

impl ClientKey {
    /// Of no client.
    pub const EMPTY: Self = Self {
        service: ServiceKey::EMPTY,
        client: Ip16::NONE,
    };
}

/// The backend that a client had last.
///
/// *Written by* and *read by* `service`. *Lifetime*: the affinity's timeout, or until others need the room.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Kept {
    /// Address of the backend.
    pub ip: Ip16,
    /// Tick at which the client opened its last connection.
    pub seen: u32,
    /// Port of the backend.
    pub port: u16,
    /// Zero.
    pub reserved: u16,
}

const _: () = assert!(size_of::<Kept>() == 24);

impl Kept {
    /// Of no client.
    pub const NONE: Self = Self {
        ip: Ip16::NONE,
        seen: 0,
        port: 0,
        reserved: 0,
    };
}

#[cfg(test)]
mod tests;
