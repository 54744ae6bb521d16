//! Traffic of ordinary programs in pods: UDP and TCP over both families.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::pod::Port;
use crate::wait::PATIENCE;

/// A UDP socket of the pod, bound to one of its addresses.
///
/// # Panics
/// If the address is not there.
#[track_caller]
pub fn udp(port: &Port, ip: IpAddr) -> UdpSocket {
    let socket = port.netns.run_in(|| UdpSocket::bind((ip, 0)));
    let socket = socket.expect("the pod's namespace can be entered");
    let socket = socket.expect("a UDP socket on the pod's address");
    let patience = Some(PATIENCE);
    socket.set_read_timeout(patience).expect("a timeout");
    socket
}

/// A datagram from `a` to `b` and one back.
///
/// # Errors
/// The kernel's, and `WouldBlock` when nothing arrives.
pub fn udp_round_trip(a: &Port, from: IpAddr, b: &Port, to: IpAddr) -> io::Result<()> {
    let (here, there) = (udp(a, from), udp(b, to));
    let mut buffer = [0; 64];
    here.send_to(b"question", there.local_addr()?)?;
    let (_, asker) = there.recv_from(&mut buffer)?;
    there.send_to(b"answer", asker)?;
    let length = here.recv(&mut buffer)?;
    assert_eq!(buffer.get(..length), Some(b"answer".as_slice()));
    Ok(())
}

/// Sends datagrams to an echo, one after the other; returns the number of answers.
///
/// # Errors
/// The kernel's, and `WouldBlock` when nothing arrives.
pub fn udp_answers(a: &Port, from: IpAddr, echo: SocketAddr, count: u32) -> io::Result<u32> {
    let (here, mut answers) = (udp(a, from), 0);
    for number in 0..count {
        let mut buffer = [0; 64];
        let sent = number.to_be_bytes();
        here.send_to(&sent, echo)?;
        let (length, _) = here.recv_from(&mut buffer)?;
        answers += u32::from(buffer.get(..length) == Some(&sent[..]));
    }
    Ok(answers)
}

/// A TCP connection from `a` to `b` that carries `bytes` there and back.
///
/// # Errors
/// The kernel's.
pub fn tcp_round_trip(a: &Port, b: &Port, to: IpAddr, bytes: usize) -> io::Result<()> {
    let inside = "the pod's namespace can be entered";
    let listener = b
        .netns
        .run_in(|| TcpListener::bind((to, 0)))
        .expect(inside)?;
    let target = listener.local_addr()?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut received = vec![0; bytes];
            stream.read_exact(&mut received)?;
            stream.write_all(&received)
        });
        let connected = a
            .netns
            .run_in(|| TcpStream::connect_timeout(&target, PATIENCE));
        let exchange = connected.expect(inside).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            let sent: Vec<u8> = (0..=u8::MAX).cycle().take(bytes).collect();
            stream.write_all(&sent)?;
            let mut received = vec![0; bytes];
            stream.read_exact(&mut received)?;
            assert_eq!(sent, received, "TCP carries what was sent");
            Ok(())
        });
        if exchange.is_ok() {
            echo.join().expect("the echo thread does not panic")
        } else {
            // Somebody has to be accepted, or the thread never ends.
            let _ = b.netns.run_in(|| TcpStream::connect(target));
            let _ = echo.join();
            exchange
        }
    })
}

/// Pairs of addresses of the same family.
pub fn pairs(a: &Port, b: &Port) -> Vec<(IpAddr, IpAddr)> {
    let first = |port: &Port, v4: bool| {
        let mut ips = port.ips.iter().map(|(ip, _)| *ip);
        ips.find(|ip| ip.is_ipv4() == v4)
    };
    [true, false]
        .into_iter()
        .filter_map(|v4| Some((first(a, v4)?, first(b, v4)?)))
        .collect()
}

/// Fails the test unless `a` and `b` reach each other by UDP and TCP.
///
/// It tries every family they share.
///
/// # Panics
/// Then.
#[track_caller]
pub fn assert_reaches(a: &Port, b: &Port) {
    let pairs = pairs(a, b);
    assert!(!pairs.is_empty(), "they share no address family");
    for (here, there) in pairs {
        let udp = udp_round_trip(a, here, b, there);
        assert!(udp.is_ok(), "UDP {here} -> {there}: {udp:?}");
        let tcp = tcp_round_trip(a, b, there, 100_000);
        assert!(tcp.is_ok(), "TCP {here} -> {there}: {tcp:?}");
    }
}

/// Sends a datagram with `marker` as payload from `a`; no answer is expected.
///
/// # Errors
/// The kernel's, such as no route.
pub fn shout(a: &Port, from: IpAddr, to: SocketAddr, marker: &[u8]) -> io::Result<()> {
    let socket = udp(a, from);
    socket.set_broadcast(true)?;
    socket.set_write_timeout(Some(Duration::from_secs(1)))?;
    socket.send_to(marker, to).map(|_| ())
}
