//! Where the binaries under test are.

use std::path::{Path, PathBuf};

/// The two binaries.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// `podnet-agent`.
    pub agent: PathBuf,
    /// `podnet`.
    pub cni: PathBuf,
}

impl Binaries {
    /// `PODNET_AGENT` and `PODNET_CNI`, else the workspace's release build.
    ///
    /// # Panics
    /// If one is missing.
    pub fn find() -> Self {
        Self {
            agent: find("PODNET_AGENT", "podnet-agent"),
            cni: find("PODNET_CNI", "podnet"),
        }
    }
}

fn find(variable: &str, name: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(
        || {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
            target
                .unwrap_or_else(|| root.join("target"))
                .join("release")
                .join(name)
        },
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "{} is missing: build it with `cargo xtask build --release`, or let {variable} name it",
        path.display()
    );
    path
}
