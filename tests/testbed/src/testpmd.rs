//! Run DPDK's testpmd of packages that are unpacked below a directory.
//!
//! It must be told where its drivers and its libraries are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the command of testpmd below `root` on one processor, with these drivers.
///
/// Its files in `/run` are in `dir`, by the name `prefix`. Arguments of DPDK may follow, then `--` and
/// those of testpmd.
///
/// # Panics
/// If a driver is not there.
pub fn command(root: &Path, drivers: &[&str], cpu: usize, (dir, prefix): (&Path, &str)) -> Command {
    let drivers = drivers.iter().map(|name| driver(root, name));
    let drivers: Vec<PathBuf> = drivers
        .map(|file| file.expect("the driver is below the directory"))
        .collect();
    let libraries = drivers.first().and_then(|file| file.ancestors().nth(3));
    let libraries = libraries.expect("drivers are below their libraries");
    let preload: Vec<String> = drivers
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let mut command = Command::new(root.join("usr/bin/dpdk-testpmd"));
    command
        .args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry"])
        .args(["--iova-mode=va", "--file-prefix", prefix])
        .args(["--lcores", &format!("0@{cpu},1@{cpu}")])
        .env("LD_LIBRARY_PATH", libraries)
        .env("LD_PRELOAD", preload.join(":"))
        .env("RUNTIME_DIRECTORY", dir);
    command
}

/// Finds a driver: `librte_x.so.23` is its name, `librte_x.so.23.0` the file.
///
/// It is in the drivers' own directory.
fn driver(root: &Path, name: &str) -> Option<PathBuf> {
    let begin = format!("{name}.so.");
    let mut dirs = vec![root.join("usr/lib")];
    while let Some(dir) = dirs.pop() {
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        let in_place = name(&dir).is_some_and(|name| name.starts_with("pmds-"));
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = name(&path).unwrap_or_default();
            let version = name.strip_prefix(&begin);
            if in_place && version.is_some_and(|version| !version.contains('.')) {
                return Some(path);
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(path);
            }
        }
    }
    None
}
