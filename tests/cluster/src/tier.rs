//! Run the tests in tests/tests/e2e as a tier of `cargo xtask test`.
//!
//! They have a cluster of their own, of which nothing is left.

use anyhow::{Result, bail};

use super::test::{self, MANIFEST, NODES, Show};
use super::{Cni, Up, place, up};
use xtask::step::say;
use xtask::test::{Tally, release_tests};
use xtask::workspace;

/// Starts a cluster, installs `deploy/install.yaml`, tests it, ends the cluster.
///
/// `chaos` is too long for this: `cargo xtask cluster test` has it.
///
/// # Errors
/// A cluster is there already, something does not start, a test fails, or something is left.
pub(crate) fn run(filter: &[String]) -> Result<()> {
    let tally = &mut Tally::default();
    let left = place::contents();
    if !left.is_empty() {
        bail!(
            "a cluster is there already; `cargo xtask cluster down` removes it: {}",
            left.join(", ")
        );
    }
    let binary = test::build(release_tests())?;
    let archive = test::image()?;
    let done = up(&Up {
        nodes: NODES,
        cni: Cni::Reference,
        image: None,
    })
    .and_then(|_| {
        let manifest = workspace::root().join(MANIFEST);
        test::install(&archive, &manifest)?;
        test::together(&binary, &manifest, filter, (tally, Show::All))?;
        if filter.is_empty() {
            test::uninstall(&binary, &manifest, (tally, Show::All))?;
        }
        Ok(())
    });
    if done.is_err() {
        // Logs go with the cluster. What cannot be seen has said why.
        let _ = test::dump();
    }
    let removed = place::remove();
    done?;
    removed?;
    say("nothing of the cluster is left");
    Ok(())
}
