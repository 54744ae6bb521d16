//! The kubelet's protocols for its neighbours on a node: gRPC over Unix sockets.
//!
//! - [`device_plugin`]: the messages of device plugins (`v1beta1`), [`serve`] for who has devices, and
//!   [`register`] to tell the kubelet of them.
//! - [`pod_resources`]: which devices the containers of a pod have (`v1`), and [`PodResourcesClient`] to
//!   ask.
//! - [`peer`]: the kubelet's own side of both, for tests.
//!
//! The messages are generated from the kubelet's descriptions in `proto`, by a test that compares them
//! otherwise: `BLESS=1 cargo test -p kubelet --test generated`.

pub mod device_plugin;
mod dial;
mod messages;
pub mod peer;
pub mod pod_resources;
mod server;

pub use device_plugin::{DevicePlugin, register, serve};
pub use dial::CallError;
pub use pod_resources::PodResourcesClient;
