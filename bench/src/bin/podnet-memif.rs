//! Run `podnet-memif`: small applications for a memif port, in its pod.
//!
//! They need no privilege: an echo, a counter, a generator and a ping.
//!
//! ```sh
//! podnet-memif echo --interface net1
//! ```

use std::process::ExitCode;

use bench::apps::{self, Memif};

fn main() -> ExitCode {
    apps::main::<Memif>("podnet-memif")
}
