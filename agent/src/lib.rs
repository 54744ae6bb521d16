//! The podnet node agent: what a node's attachments should be, made so and kept so.
//!
//! A tour, in the order of a CNI `ADD`:
//!
//! - [`listen`] takes connections, within limits; each of them ends.
//! - [`door`] serves the socket: it takes the request and sends the answer, and undoes what nobody heard of.
//! - [`cni`] answers the request; every CNI code is chosen there. [`tombstone`]s are removals that waited.
//! - [`world`] knows which networks exist and what they are; [`kube`] tells it, in a cluster.
//! - [`pods`] finds out from a pod's own lists what it is attached to, and does it one by one;
//!   [`delegate`] calls the plugins of others.
//! - [`world::lists`] is what is said in a cluster about the lists of pods.
//! - [`book`] chooses addresses and remembers attachments and pods, in memory and on the disk; [`attach`]
//!   makes and unmakes them, record before effect.
//! - [`ports`] is the door to what an attachment has on the node: links, sockets, queues, TCX links.
//! - [`reach`] is the door to what carries a network beyond the node; [`node_stack`] is what of it goes through
//!   the node's own stack.
//! - [`tables`] is the only writer of BPF maps: from records to map entries.
//! - [`explain`] follows a packet through the live tables, and says what would happen to it.
//! - [`capture`] shows the packets of one port, each with its verdict.
//! - [`devices`] has ports as devices that Kubernetes counts and gives to pods.
//! - [`install`] puts the plugin where the runtime finds it.
//! - `node_access` gives the node a port of its own on networks that say so.
//! - [`recover`] runs the same path at start and on a timer, whatever happened in between, and passes on
//!   what happens to links.
//!
//! [`webhook`] is another program of the same binary: what the API server asks before it takes a
//! pod.
//!
//! [`run`] puts it together; [`admin`], [`metrics`] and [`commands`] show it.
//! [`controller`] decides what is decided once for a cluster; it is another process.

pub mod admin;
pub mod attach;
pub mod capture;
pub mod cli;
pub mod cni;
pub mod commands;
pub mod device_plugin;
pub mod devices;
pub mod door;
pub mod error;
pub mod explain;
pub mod heap;
pub mod install;
pub mod kube;
pub mod lease;
pub mod node;
mod node_access;
pub mod places;
pub mod pods;
pub mod recover;
mod request;
pub mod run;
mod service_objects;
pub mod tombstone;
pub mod views;
