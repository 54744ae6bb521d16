//! Pods that list their networks themselves (NPWG v1.3, KEP-3698).
//!
//! One request of the runtime makes as many attachments as the lists have.
//!
//! - [`plan`] finds out what to do, before anything is done: what the lists say, what the objects
//!   they name mean, who gets the default routes.
//! - [`add`] does it in order, and undoes all of it when one part fails.
//! - [`remove`] works from the record alone, whatever became of lists and objects: `DEL`, `GC`, and
//!   what a restart has to finish.
//! - [`check`] does the same for `CHECK`, and [`status`] tells Kubernetes.

mod add;
mod check;
mod conf_dir;
mod defaults;
mod devices;
mod host_ports;
mod plan;
mod remove;
mod status;

pub(crate) use remove::ATTEMPTS;
