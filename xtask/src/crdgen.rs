//! `cargo xtask crdgen`: generates `deploy/crds` from the types in `crates/api`.
//!
//! A test of theirs does it, which compares them otherwise.

use anyhow::Result;

use crate::step::execute;
use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {}

/// Writes every definition again, and removes files that are of no kind any more.
pub(crate) fn run(_: &Options) -> Result<()> {
    let test = ["test", "--quiet", "--package", "api", "--test", "crds"];
    execute(workspace::cargo(test).env("BLESS", "1"))
}
