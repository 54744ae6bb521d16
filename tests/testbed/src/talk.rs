//! Conversations between namespaces.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use netdev::Netns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Port;
use crate::wait::{self, PATIENCE};

/// Runs a TCP conversation between two namespaces; returns the client's address.
///
/// The address is the one that the server saw. The client calls the server by the address `to`.
///
/// # Errors
/// The kernel's, and those of the other side.
///
/// # Panics
/// If what arrives is not what was sent.
pub fn tcp(client: &Netns, to: SocketAddr, server: &Netns, at: SocketAddr) -> io::Result<IpAddr> {
    let inside = "the namespace can be entered";
    let listener = bound(server, || TcpListener::bind(at))?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> io::Result<IpAddr> {
            let (mut stream, peer) = accept(&listener)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut received = [0; 100_000];
            stream.read_exact(&mut received)?;
            stream.write_all(&received)?;
            Ok(peer.ip())
        });
        let connected = client.run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
        let exchange = connected.expect(inside).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            let sent: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
            stream.write_all(&sent)?;
            let mut received = vec![0; sent.len()];
            stream.read_exact(&mut received)?;
            assert_eq!(sent, received, "TCP carries what was sent");
            Ok(())
        });
        if let Err(error) = exchange {
            let seen = echo.join();
            return Err(io::Error::other(format!("{error}; the server: {seen:?}")));
        }
        echo.join().expect("the echo thread does not panic")
    })
}

/// Binds a socket in a namespace, once its port is free.
///
/// A process that another test is just starting has the last one that had it for a moment more.
///
/// # Errors
/// The kernel's.
///
/// # Panics
/// If the port does not get free.
pub fn bound<T: Send>(netns: &Netns, bind: impl Fn() -> io::Result<T> + Sync) -> io::Result<T> {
    wait::until("the port to be free", || {
        let bound = netns.run_in(&bind).expect("the namespace can be entered");
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        (!bound.as_ref().is_err_and(is_taken)).then_some(bound)
    })
}

/// Binds a UDP socket in the namespace of a port, which waits for [`PATIENCE`].
///
/// # Panics
/// If the kernel refuses.
pub fn socket(port: &Port, at: SocketAddr) -> UdpSocket {
    let socket = bound(&port.netns, || UdpSocket::bind(at)).expect("a UDP socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Waits until a host without servers answers.
///
/// A link that has just come up drops what it is given first.
///
/// # Panics
/// If it does not.
pub fn wait_for_host(netns: &Netns, host: impl Into<IpAddr>) {
    let nobody = SocketAddr::new(host.into(), 9);
    wait::until_true("the host to be there", || {
        let connect = || TcpStream::connect(nobody).map_err(|it| it.kind());
        let outcome = netns.run_in(connect).expect("the namespace can be entered");
        matches!(outcome, Err(io::ErrorKind::ConnectionRefused))
    });
}

/// The next who connects, but not for ever.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let mut ready = [PollFd::new(listener, PollFlags::IN)];
    let patience = Timespec::try_from(PATIENCE + PATIENCE).expect("not long");
    if poll(&mut ready, Some(&patience))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    listener.accept()
}
