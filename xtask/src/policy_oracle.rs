//! `cargo xtask policy-oracle`: ask an engine of others what policies mean.

use anyhow::Result;

use crate::kubernetes::{self, golang::oracle};
use crate::step::execute;
use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {}

/// Builds the engine and runs the test that asks it.
///
/// # Errors
/// It cannot be built, or answers something else.
pub(crate) fn run(_: &Options) -> Result<()> {
    let program = oracle::cyclonus(&kubernetes::dir())?;
    let mut test = workspace::cargo([
        "test",
        "--release",
        "--package",
        "policy",
        "--test",
        "oracle",
    ]);
    execute(
        test.args(["--", "--nocapture"])
            .env("PODNET_POLICY_ORACLE", program),
    )
}
