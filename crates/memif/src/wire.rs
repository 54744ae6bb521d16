//! The messages of memif 2.0: 128 bytes each, in the byte order of the machine.
//!
//! Pure: bytes to values and back. Which message may come when is [`crate::handshake`]'s business.

mod text;

use thiserror::Error;

pub use self::text::{Secret, Text, TextError};

/// Bytes of a message, whatever its type.
pub const MESSAGE_LEN: usize = 128;
/// The version this crate speaks: 2.0.
pub const VERSION: u16 = 0x0200;
/// The largest ring: 2^14 slots.
///
/// With more, a full ring's 16-bit indices would be ambiguous.
pub const MAX_LOG2_RING_SIZE: u8 = 14;
/// The interface mode of Ethernet frames, the only one here.
pub const MODE_ETHERNET: u8 = 0;

/// The name of an application or of an interface.
pub type Name = Text<32>;
/// Why somebody disconnects.
pub type ReasonText = Text<96>;
/// A message as it travels.
pub type MessageBytes = [u8; MESSAGE_LEN];

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Not 128 bytes.
    #[error("message of {0} bytes, must be 128")]
    Length(usize),
    /// A type that memif 2.0 does not have.
    #[error("unknown message type {0}")]
    Type(u16),
}

/// HELLO: what a server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server's application.
    pub name: Name,
    /// The oldest version it speaks.
    pub min_version: u16,
    /// The newest version it speaks.
    pub max_version: u16,
    /// The highest region index, not the number of regions.
    pub max_region: u16,
    /// The highest index of a ring to the client.
    pub max_s2c_ring: u16,
    /// The highest index of a ring from the client.
    pub max_c2s_ring: u16,
    /// The largest ring, as a power of two.
    pub max_log2_ring_size: u8,
}

/// INIT: which interface a client wants.
#[derive(Clone, Copy, Debug)]
pub struct Init {
    /// The version that is spoken from here on.
    pub version: u16,
    /// The interface, of those behind the socket.
    pub id: u32,
    /// The content of packets.
    pub mode: u8,
    /// The client's secret.
    pub secret: Secret,
    /// The client's application.
    pub name: Name,
}

/// ADD_REGION: a file of shared memory comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRegion {
    /// Its number.
    pub index: u16,
    /// Its size in bytes, as the client says.
    pub size: u64,
}

/// ADD_RING: an eventfd comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Whether packets go from the client to the server.
    pub from_client: bool,
    /// Its number among the rings of this direction.
    pub index: u16,
    /// The region with its header and descriptors.
    pub region: u16,
    /// Where in the region, in bytes.
    pub offset: u32,
    /// Number of slots, as a power of two.
    pub log2_ring_size: u8,
    /// Bytes before each packet that belong to the application; unused.
    pub private_hdr_size: u16,
}

/// DISCONNECT: the last message of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Always 0 in practice.
    pub code: u32,
    /// For people.
    pub reason: ReasonText,
}

/// A message of the control channel.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// The last message was understood; the client may send the next one.
    Ack,
    /// The server's abilities; its first message.
    Hello(Hello),
    /// Which interface the client wants; its first message.
    Init(Init),
    /// A region of the client's memory.
    AddRegion(AddRegion),
    /// A ring in a region.
    AddRing(AddRing),
    /// All is said; the name of the client's interface.
    Connect(Name),
    /// Packets may flow; the name of the server's interface.
    Connected(Name),
    /// The end.
    Disconnect(Disconnect),
}

/// The type numbers.
mod kind {
    pub(super) const ACK: u16 = 1;
    pub(super) const HELLO: u16 = 2;
    pub(super) const INIT: u16 = 3;
    pub(super) const ADD_REGION: u16 = 4;
    pub(super) const ADD_RING: u16 = 5;
    pub(super) const CONNECT: u16 = 6;
    pub(super) const CONNECTED: u16 = 7;
    pub(super) const DISCONNECT: u16 = 8;
}

/// Bit 0 of the flags of ADD_RING.
const RING_FROM_CLIENT: u16 = 1;

impl Message {
    /// Reads a datagram.
    ///
    /// # Errors
    /// It is not 128 bytes long, or of no type of memif 2.0.
    pub fn decode(datagram: &[u8]) -> Result<Self, WireError> {
        if datagram.len() != MESSAGE_LEN {
            return Err(WireError::Length(datagram.len()));
        }
        let mut fields = Fields(datagram);
        Ok(match fields.u16() {
            kind::ACK => Self::Ack,
            kind::HELLO => Self::Hello(Hello {
                name: Text::from_field(fields.take()),
                min_version: fields.u16(),
                max_version: fields.u16(),
                max_region: fields.u16(),
                max_s2c_ring: fields.u16(),
                max_c2s_ring: fields.u16(),
                max_log2_ring_size: fields.u8(),
            }),
            kind::INIT => Self::Init(Init {
                version: fields.u16(),
                id: fields.u32(),
                mode: fields.u8(),
                secret: Secret::from_field(fields.take()),
                name: Text::from_field(fields.take()),
            }),
            kind::ADD_REGION => Self::AddRegion(AddRegion {
                index: fields.u16(),
                size: fields.u64(),
            }),
            kind::ADD_RING => {
                let flags = fields.u16();
                Self::AddRing(AddRing {
                    from_client: flags & RING_FROM_CLIENT != 0,
                    index: fields.u16(),
                    region: fields.u16(),
                    offset: fields.u32(),
                    log2_ring_size: fields.u8(),
                    private_hdr_size: fields.u16(),
                })
            }
            kind::CONNECT => Self::Connect(Text::from_field(fields.take())),
            kind::CONNECTED => Self::Connected(Text::from_field(fields.take())),
            kind::DISCONNECT => Self::Disconnect(Disconnect {
                code: fields.u32(),
                reason: Text::from_field(fields.take()),
            }),
            other => return Err(WireError::Type(other)),
        })
    }

    /// The datagram to send; bytes without a meaning are zero.
    pub fn encode(&self) -> MessageBytes {
        let mut out = Writer::default();
        match self {
            Self::Ack => out.u16(kind::ACK),
            Self::Hello(hello) => {
                out.u16(kind::HELLO);
                out.put(hello.name.as_field());
                out.u16(hello.min_version);
                out.u16(hello.max_version);
                out.u16(hello.max_region);
                out.u16(hello.max_s2c_ring);
                out.u16(hello.max_c2s_ring);
                out.put(&[hello.max_log2_ring_size]);
            }
            Self::Init(init) => {
                out.u16(kind::INIT);
                out.u16(init.version);
                out.put(&init.id.to_ne_bytes());
                out.put(&[init.mode]);
                out.put(init.secret.as_field());
                out.put(init.name.as_field());
            }
            Self::AddRegion(region) => {
                out.u16(kind::ADD_REGION);
                out.u16(region.index);
                out.put(&region.size.to_ne_bytes());
            }
            Self::AddRing(ring) => {
                out.u16(kind::ADD_RING);
                out.u16(if ring.from_client {
                    RING_FROM_CLIENT
                } else {
                    0
                });
                out.u16(ring.index);
                out.u16(ring.region);
                out.put(&ring.offset.to_ne_bytes());
                out.put(&[ring.log2_ring_size]);
                out.u16(ring.private_hdr_size);
            }
            Self::Connect(name) => {
                out.u16(kind::CONNECT);
                out.put(name.as_field());
            }
            Self::Connected(name) => {
                out.u16(kind::CONNECTED);
                out.put(name.as_field());
            }
            Self::Disconnect(disconnect) => {
                out.u16(kind::DISCONNECT);
                out.put(&disconnect.code.to_ne_bytes());
                out.put(disconnect.reason.as_field());
            }
        }
        out.bytes
    }

    /// Returns the specification's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Hello(_) => "HELLO",
            Self::Init(_) => "INIT",
            Self::AddRegion(_) => "ADD_REGION",
            Self::AddRing(_) => "ADD_RING",
            Self::Connect(_) => "CONNECT",
            Self::Connected(_) => "CONNECTED",
            Self::Disconnect(_) => "DISCONNECT",
        }
    }
}

/// The fields of a message, one after the other; they lie without gaps.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        // All messages are shorter than the 128 bytes there are, so there is always a field.
        let Some((field, rest)) = self.0.split_first_chunk() else {
            return [0; N];
        };
        self.0 = rest;
        *field
    }

    fn u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }
}

/// The other way round.
struct Writer {
    bytes: MessageBytes,
    at: usize,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            bytes: [0; MESSAGE_LEN],
            at: 0,
        }
    }
}

impl Writer {
    fn put(&mut self, field: &[u8]) {
        let free = self.bytes.iter_mut().skip(self.at);
        for (to, from) in free.zip(field) {
            *to = *from;
        }
        self.at = self.at.saturating_add(field.len());
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
