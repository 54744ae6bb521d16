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

use std::path::PathBuf;

use world::lists::ListOptions;

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

/// Rules of the node about the lists of its pods.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Treatment of a pod whose lists cannot be understood.
    pub invalid: InvalidAnnotation,
    /// How they are read.
    pub lists: ListOptions,
    /// Where the configurations of other plugins are, as the node has it.
    pub conf_dir: PathBuf,
}

/// Treatment of a pod whose lists cannot be understood (NPWG-G1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum InvalidAnnotation {
    /// It does not start, and says why.
    #[default]
    Fail,
    /// It starts with the default network alone, which is the letter of NPWG §4.1.
    Ignore,
}
