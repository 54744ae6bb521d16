//! Packet sockets: frames as an interface has them (packet(7)).

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, bind, socket};

use crate::error::Error;

/// Opens a socket for all frames of an interface, in both directions.
///
/// The interface is one of the calling thread's namespace. The socket ends with its descriptor, and
/// changes nothing of the interface.
///
/// # Errors
/// [`Error::PacketSocket`]; needs `CAP_NET_RAW`.
pub fn packet_socket(interface: &str) -> Result<OwnedFd, Error> {
    let failed = |source: io::Error| Error::PacketSocket {
        interface: interface.to_owned(),
        source,
    };
    let found = getifaddrs().map_err(|errno| failed(errno.into()))?;
    let address = found
        .filter(|it| it.interface_name == interface)
        .find_map(|it| it.address?.as_link_addr().copied())
        .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let socket = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::EthAll,
    )
    .map_err(|errno| failed(errno.into()))?;
    // The address has no protocol, and so the socket keeps its own.
    bind(socket.as_raw_fd(), &address).map_err(|errno| failed(errno.into()))?;
    Ok(socket)
}
