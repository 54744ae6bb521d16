//! DPDK's testpmd with its memif driver, from Debian's packages.
//!
//! They are unpacked, not installed: the package with testpmd wants the development files and the
//! drivers of every device, 200 packages with udev among them. Only the libraries that testpmd loads
//! are fetched, a quarter of that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{capture, execute, say};
use crate::workspace;

/// The package with testpmd, of all places.
const TESTPMD: &str = "dpdk-dev";
/// The library that tells the ABI all of them have.
const EAL: &str = "librte_eal.so.";
/// Libraries that testpmd only loads when it is told to.
const LOADED: [&str; 2] = ["librte-net-memif", "librte-mempool-ring"];
/// Packages of libraries that are not DPDK's, by the library's name.
const OTHERS: [(&str, &str); 15] = [
    ("libbpf.so.", "libbpf"),
    ("libbsd.so.0", "libbsd0"),
    ("libefa.so.1", "ibverbs-providers"),
    ("libelf.so.1", "libelf1"),
    ("libfdt.so.1", "libfdt1"),
    ("libibverbs.so.1", "libibverbs1"),
    ("libjansson.so.4", "libjansson4"),
    ("libmana.so.1", "ibverbs-providers"),
    ("libmd.so.0", "libmd0"),
    ("libmlx4.so.1", "ibverbs-providers"),
    ("libmlx5.so.1", "ibverbs-providers"),
    ("libnl-3.so.200", "libnl-3-200"),
    ("libnl-route-3.so.200", "libnl-route-3-200"),
    ("libnuma.so.1", "libnuma1"),
    ("libpcap.so.0.8", "libpcap0.8"),
];
/// Libraries of libraries of libraries: deeper they do not go.
const ROUNDS: usize = 12;

/// Where testpmd is, below which everything has its usual place. Fetched if it is not there.
///
/// # Errors
/// apt has no such packages or cannot be reached, or a library is needed that nothing is known of.
pub(crate) fn unpack() -> Result<PathBuf> {
    let root = workspace::tools().join("dpdk");
    if root.join("complete").is_file() {
        return Ok(root);
    }
    say(format!(
        "fetching testpmd and its libraries from Debian into {}",
        root.display()
    ));
    let packages = root.join("packages");
    fs::create_dir_all(&packages).with_context(|| format!("making {}", packages.display()))?;
    fetch(&root, &[TESTPMD.to_owned()])?;
    let abi = missing(&root)?
        .iter()
        .find_map(|library| library.strip_prefix(EAL).map(str::to_owned))
        .with_context(|| format!("testpmd does not need {EAL}*"))?;
    fetch(&root, &LOADED.map(|name| format!("{name}{abi}")))?;
    for _ in 0..ROUNDS {
        let missing = missing(&root)?;
        if missing.is_empty() {
            fs::write(root.join("complete"), "").context("marking testpmd as complete")?;
            return Ok(root);
        }
        let mut wanted = missing
            .iter()
            .map(|library| package(library))
            .collect::<Result<Vec<String>>>()?;
        wanted.sort();
        wanted.dedup();
        fetch(&root, &wanted)?;
    }
    bail!("testpmd still lacks {}", missing(&root)?.join(", "))
}

/// Downloads packages and unpacks them.
fn fetch(root: &Path, packages: &[String]) -> Result<()> {
    let place = root.join("packages");
    execute(
        Command::new("apt-get")
            .args(["-o", "APT::Sandbox::User=root", "download", "--quiet"])
            .args(packages)
            .current_dir(&place),
    )
    .context("fetching packages of DPDK (`apt-get update` may help)")?;
    for entry in fs::read_dir(&place).context("reading what was fetched")? {
        let archive = entry.context("reading what was fetched")?.path();
        execute(
            Command::new("dpkg-deb")
                .arg("--extract")
                .args([&archive, root]),
        )?;
        fs::remove_file(&archive).context("removing an unpacked package")?;
    }
    Ok(())
}

/// Libraries that neither the machine nor `root` has.
fn missing(root: &Path) -> Result<Vec<String>> {
    let libraries = libraries(root)?;
    let mut objects = vec![root.join("usr/bin/dpdk-testpmd")];
    for entry in fs::read_dir(&libraries).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("librte_net_memif.so.") || name.starts_with("librte_mempool_ring.so.") {
            objects.push(entry.path());
        }
    }
    let mut missing = Vec::new();
    for object in objects {
        let text = capture(
            Command::new("ldd")
                .arg(&object)
                .env("LD_LIBRARY_PATH", &libraries),
        )?;
        missing.extend(not_found(&text));
    }
    missing.sort();
    missing.dedup();
    Ok(missing)
}

/// The directory of libraries: its name has the architecture.
fn libraries(root: &Path) -> Result<PathBuf> {
    let arch = capture(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))
        .or_else(|_| capture(Command::new("cc").arg("-dumpmachine")))
        .context("the name of the directory of libraries")?;
    Ok(root.join("usr/lib").join(arch.trim()))
}

/// What `ldd` did not find.
fn not_found(text: &str) -> Vec<String> {
    let missing = text.lines().filter(|line| line.ends_with("not found"));
    let names = missing.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// The package of a library.
fn package(library: &str) -> Result<String> {
    if let Some((name, abi)) = library.split_once(".so.")
        && name.starts_with("librte_")
    {
        let name = name.replace('_', "-");
        let dash = if name.ends_with(|last: char| last.is_ascii_digit()) {
            "-"
        } else {
            ""
        };
        return Ok(format!("{name}{dash}{abi}"));
    }
    let known = OTHERS.iter().find(|(name, _)| library.starts_with(name));
    let (name, package) =
        known.with_context(|| format!("testpmd needs {library}, of a package unknown here"))?;
    // A name that ends with a dot stands for all versions, which the package's name has too.
    let version = library.strip_prefix(name).unwrap_or_default();
    Ok(format!("{package}{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_after_their_libraries() {
        for (library, expected) in [
            ("librte_eal.so.23", "librte-eal23"),
            ("librte_net_i40e.so.23", "librte-net-i40e23"),
            ("librte_common_mlx5.so.26", "librte-common-mlx5-26"),
            ("libbpf.so.1", "libbpf1"),
            ("libnl-3.so.200", "libnl-3-200"),
            ("libmlx5.so.1", "ibverbs-providers"),
        ] {
            assert_eq!(package(library).unwrap(), expected);
        }
        assert!(package("libnobody.so.7").is_err());
    }

    #[test]
    fn missing_libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibrte_eal.so.23 => not found\n\
                    \tlibc.so.6 => /lib/libc.so.6 (0x2)\n\tlibbpf.so.1 => not found\n";
        assert_eq!(not_found(text), ["librte_eal.so.23", "libbpf.so.1"]);
    }
}
