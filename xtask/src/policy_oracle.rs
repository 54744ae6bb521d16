//! `cargo xtask policy-oracle`: ask engines of others what policies mean.

use anyhow::Result;

use crate::kubernetes::{self, golang::oracle};
use crate::step::execute;
use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {}

/// Builds the engines and runs the tests that ask them.
///
/// # Errors
/// One cannot be built, or answers something else.
pub(crate) fn run(_: &Options) -> Result<()> {
    let under = kubernetes::dir();
    let cyclonus = oracle::cyclonus(&under)?;
    let other = oracle::kube_network_policies(&under)?;
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
            .env("PODNET_POLICY_ORACLE", cyclonus)
            .env("PODNET_POLICY_ORACLE_KUBE", other),
    )
}
