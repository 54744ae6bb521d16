//! Install podnet as the cluster's own network, as docs/default-network.md says.
//!
//! The nodes have none.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::place::CONTROL;
use super::{control, kubectl, reference, test};
use xtask::step::{execute, say, succeeds};
use xtask::workspace;

/// Definitions that come first, and with them the network.
///
/// Without one the controller makes its own.
const FIRST: [&str; 8] = [
    "deploy/crds/attachmentparameters.podnet.dev.yaml",
    "deploy/crds/ipblocks.podnet.dev.yaml",
    "deploy/crds/ipreservations.podnet.dev.yaml",
    "deploy/crds/podnetworkattachments.podnet.dev.yaml",
    "deploy/crds/podnetworkendpointslices.podnet.dev.yaml",
    "deploy/crds/podnetworkparameters.podnet.dev.yaml",
    "deploy/crds/podnetworks.podnet.dev.yaml",
    "deploy/examples/default-network/native.yaml",
];
/// The manifest from which everything else is applied.
const MANIFEST: &str = "deploy/install.yaml";
const OTHERS: &str = "--default-network=delegate";
pub(super) const OURS: &str = "--default-network=podnetwork:default";

/// Returns the manifest for `cluster test --manifest`: podnet as default network.
pub(super) fn manifest() -> PathBuf {
    workspace::target().join("podnet-native.yaml")
}

/// Installs podnet and waits until nodes and webhook are ready.
///
/// The image is this one, or one that is built.
///
/// # Errors
/// It does not get ready.
pub(super) fn install(image: Option<PathBuf>) -> Result<()> {
    say("podnet becomes the cluster's network");
    let archive = image.map_or_else(test::image, Ok)?;
    write_manifest()?;
    for file in FIRST {
        let file = workspace::root().join(file);
        control::wait_for("the definitions", Duration::from_secs(30), || {
            Ok(succeeds(kubectl()?.args(["apply", "-f"]).arg(&file)))
        })?;
    }
    // The agents make the nodes' routes. The machine of the API server is no node, and calls webhooks.
    reference::route(kubectl, &[CONTROL])?;
    test::install(&archive, &manifest())?;
    execute(kubectl()?.args([
        "wait",
        "--for=condition=Ready",
        "nodes",
        "--all",
        "--timeout=60s",
    ]))?;
    say(format!(
        "`cargo xtask cluster test --manifest {}` tests it",
        manifest().display()
    ));
    Ok(())
}

fn write_manifest() -> Result<()> {
    let path = workspace::root().join(MANIFEST);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = with_our_network(&text)?;
    let path = manifest();
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// The manifest with podnet as the default network in all of its workloads.
fn with_our_network(text: &str) -> Result<String> {
    // Agent, controller and webhook must agree.
    let workloads = text.matches(OTHERS).count();
    if workloads != 3 {
        bail!("{MANIFEST} has {OTHERS} {workloads} times, not once for each of 3 workloads");
    }
    Ok(text.replace(OTHERS, OURS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_the_repository_has_the_default_network_in_three_places() {
        let text = fs::read_to_string(workspace::root().join(MANIFEST)).unwrap();
        let ours = with_our_network(&text).unwrap();
        assert_eq!(ours.matches(OURS).count(), 3);
        assert!(with_our_network(&ours).is_err());
    }

    #[test]
    fn everything_that_comes_first_is_there() {
        for file in FIRST {
            assert!(workspace::root().join(file).is_file(), "{file}");
        }
    }
}
