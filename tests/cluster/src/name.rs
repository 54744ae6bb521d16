//! Name the cluster of this process, and remember the checkout that made one.
//!
//! Clusters of several names run side by side: their parts, files and control groups have the name in theirs.
//! A checkout ends its own clusters; another's only when it is told to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use xtask::workspace;

/// The variable with the name, for programs that a cluster starts.
pub(super) const VARIABLE: &str = "PODNET_CLUSTER_NAME";
/// The name when none is given.
pub(super) const DEFAULT: &str = "k8s";
/// Directory with a file for each cluster: the path of the checkout that made it.
const OWNERS: &str = "/run/podnet-clusters";
/// Longest name, bytes; it is part of the names of groups and of namespaces.
const LENGTH: usize = 12;

/// A cluster's name: 1 to 12 lower-case letters and digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterName(String);

impl FromStr for ClusterName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if text.is_empty() || text.len() > LENGTH || !text.bytes().all(fits) {
            return Err(format!(
                "the name of a cluster has 1 to {LENGTH} lower-case letters and digits"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

static CHOSEN: OnceLock<ClusterName> = OnceLock::new();

/// Chooses the cluster of this process, once.
pub(super) fn choose(name: &ClusterName) {
    let _ = CHOSEN.set(name.clone());
}

/// Returns the name of this process's cluster.
pub(super) fn chosen() -> &'static str {
    CHOSEN.get().map_or(DEFAULT, |name| name.0.as_str())
}

/// Prefix of the names of network namespaces and control groups.
///
/// A name has no hyphen, so that no prefix begins another.
pub(super) fn prefix() -> String {
    format!("podnet-{}-", chosen())
}

/// Gives the name to a program that asks for the same cluster.
pub(super) fn describe_to(command: &mut Command) {
    command.env(VARIABLE, chosen());
}

/// Notes that this checkout makes the cluster.
///
/// # Errors
/// The note cannot be written.
pub(super) fn own() -> Result<()> {
    write(Path::new(OWNERS), chosen(), &workspace::root())
}

/// Removes the note.
///
/// # Errors
/// It cannot be removed.
pub(super) fn disown() -> Result<()> {
    remove(Path::new(OWNERS), chosen())
}

/// Refuses to touch the cluster of another checkout.
///
/// # Errors
/// The cluster belongs to another checkout that is still there.
pub(super) fn check_owner() -> Result<()> {
    check(Path::new(OWNERS), chosen(), &workspace::root())
}

fn write(owners: &Path, name: &str, checkout: &Path) -> Result<()> {
    let path = owners.join(name);
    fs::create_dir_all(owners)
        .and_then(|()| fs::write(&path, checkout.as_os_str().as_encoded_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

fn remove(owners: &Path, name: &str) -> Result<()> {
    let path = owners.join(name);
    if path.exists() {
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    // Another cluster may have its note there.
    let _ = fs::remove_dir(owners);
    Ok(())
}

fn check(owners: &Path, name: &str, checkout: &Path) -> Result<()> {
    let Ok(owner) = fs::read_to_string(owners.join(name)) else {
        return Ok(());
    };
    let owner = PathBuf::from(owner);
    if owner == checkout || !owner.exists() {
        return Ok(());
    }
    bail!(
        "cluster {name} belongs to the checkout at {}: end it there, end it from here with `cargo xtask \
         cluster down --force`, or choose another name with --name",
        owner.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_a_namespace_without_a_hyphen() {
        for good in ["k8s", "a", "two2", "abcdefghijkl"] {
            assert_eq!(good.parse(), Ok(ClusterName(good.to_owned())));
        }
        for bad in ["", "a-b", "A", "../x", "abcdefghijklm"] {
            let error = bad.parse::<ClusterName>().unwrap_err();
            assert!(error.contains("lower-case letters"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_cluster_is_ended_by_its_own_checkout_and_by_any_when_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let owners = dir.path().join("owners");
        let (own, other) = (dir.path().join("own"), dir.path().join("other"));
        fs::create_dir(&own).unwrap();
        check(&owners, "k8s", &other).unwrap();
        write(&owners, "k8s", &own).unwrap();
        check(&owners, "k8s", &own).unwrap();
        check(&owners, "two", &other).unwrap();
        let error = check(&owners, "k8s", &other).unwrap_err().to_string();
        assert!(
            error.contains("own") && error.contains("--force"),
            "{error}"
        );
        fs::remove_dir(&own).unwrap();
        check(&owners, "k8s", &other).unwrap();
        remove(&owners, "k8s").unwrap();
        remove(&owners, "k8s").unwrap();
        assert!(!owners.exists());
    }
}
