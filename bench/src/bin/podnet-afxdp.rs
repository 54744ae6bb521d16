//! Run `podnet-afxdp`: small applications for an AF_XDP port, in its pod.
//!
//! They need no privilege: an echo, a counter, a generator and a ping.
//!
//! ```sh
//! podnet-afxdp generate --interface net1 --mac OURS THEIRS --ip OURS THEIRS
//! ```

use std::process::ExitCode;

use bench::apps::{self, AfXdp};

fn main() -> ExitCode {
    apps::main::<AfXdp>("podnet-afxdp")
}
