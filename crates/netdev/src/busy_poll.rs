//! Busy polling of a socket, which only `CAP_NET_ADMIN` may prefer to interrupts.

use std::io;
use std::os::fd::BorrowedFd;

use nix::sys::socket::SetSockOpt as _;
use nix::{libc, setsockopt_impl, sockopt_impl};

sockopt_impl!(
    /// Prefer it to interrupts (Linux 5.11).
    PreferBusyPoll,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_PREFER_BUSY_POLL,
    usize
);
sockopt_impl!(
    /// For how long a read polls, in microseconds.
    BusyPoll,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_BUSY_POLL,
    usize
);
sockopt_impl!(
    /// For how many packets (Linux 5.11).
    BusyPollBudget,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_BUSY_POLL_BUDGET,
    usize
);

/// Makes reads of a socket poll for `timeout` µs and `budget` packets.
///
/// They poll instead of waiting for an interrupt.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.11; `EPERM` without `CAP_NET_ADMIN`.
pub fn busy_poll(socket: BorrowedFd<'_>, timeout: u32, budget: u32) -> io::Result<()> {
    let number = |it: u32| usize::try_from(it).unwrap_or(usize::MAX);
    PreferBusyPoll.set(&socket, &1)?;
    BusyPoll.set(&socket, &number(timeout))?;
    BusyPollBudget.set(&socket, &number(budget))?;
    Ok(())
}
