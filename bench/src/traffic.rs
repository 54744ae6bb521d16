//! Load a path, with `iperf3` for streams and the probe for small datagrams.
//!
//! The probe of this package also makes round trips and connections.

pub mod iperf;
pub mod order;
pub mod process;

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use netdev::Netns;

pub use self::iperf::{Bulk, Carried};
pub use self::order::{Answer, Mode, Order};

/// Two processors to work on; on a machine with one they are the same.
pub fn cpus() -> [usize; 2] {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    [0, usize::from(count > 1)]
}

/// Returns the congestion control of all TCP streams: cubic, if the kernel has it.
///
/// Most systems use it.
pub fn congestion() -> &'static str {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = fs::read_to_string(path).unwrap_or_default();
    if known.split_whitespace().any(|name| name == "cubic") {
        "cubic"
    } else {
        "reno"
    }
}

/// The namespace as a file that other processes can open.
pub(crate) fn path_of(netns: &Netns) -> String {
    let fd = netns.as_fd().as_raw_fd();
    format!("/proc/{}/fd/{fd}", std::process::id())
}
