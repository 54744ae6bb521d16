//! Fixtures of the privileged tests: nodes, pods, raw frames, and left-overs.
//!
//! Scratch nodes have a real `podnet-agent`, pods are attached by the real `podnet`, and what is left
//! afterwards is searched for.
//!
//! It knows the command lines, the CNI protocol and the kernel. It refuses to know how the agent
//! does anything: no store, no crate of the agent is used here, and of its maps no more than what
//! damages them ([`pins`]).
//!
//! A failed expectation of a fixture is a failed test, so fixtures panic instead of returning
//! errors. Nothing but the binaries under test is executed: the same tests run in a VM that has
//! busybox only.
//!
//! ```no_run
//! let node = testbed::node!();
//! let (a, b) = (node.pod("a"), node.pod("b"));
//! let (a, b) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
//! testbed::traffic::assert_reaches(&a, &b);
//! ```

pub mod afxdp;
pub mod apiserver;
pub mod beyond;
pub mod capture;
pub mod cni;
pub mod documented;
pub mod fabric;
pub mod flow_log;
pub mod frame;
pub mod host;
pub mod kubectl_plugin;
pub mod kubelet;
pub mod libmemif;
pub mod limit;
pub mod manifest;
pub mod memif_app;
pub mod nat;
pub mod netlink;
pub mod node;
pub mod pins;
pub mod pki;
pub mod plugins;
pub mod pod;
pub mod residue;
pub mod schedule;
pub mod skip;
pub mod stream;
pub mod talk;
pub mod tap;
pub mod testpmd;
pub mod traffic;
pub mod wait;
pub mod watch;
pub mod wire;

pub use crate::cni::{Call, Outcome};
pub use crate::fabric::Fabric;
pub use crate::manifest::Network;
pub use crate::memif_app::MemifApp;
pub use crate::node::{Explained, Node, Setup};
pub use crate::pod::{Pod, Port};
pub use crate::schedule::Schedule;
pub use crate::tap::{Tap, VirtioHeader};
pub use crate::watch::Watch;

/// A scratch node with an agent; returns from the test when it cannot be had here.
///
/// `node!()` has the standard networks, `node!(setup)` those of the [`Setup`].
#[macro_export]
macro_rules! node {
    () => {
        $crate::node!($crate::Setup::default())
    };
    ($setup:expr) => {{
        if $crate::skip::without_root($crate::test_name!()) {
            return;
        }
        $crate::Node::start($setup)
    }};
}

/// The name of the calling test, as libtest prints it.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        let path = path.strip_suffix("::here").unwrap_or(path);
        path.split_once("::").map_or(path, |(_, name)| name)
    }};
}
