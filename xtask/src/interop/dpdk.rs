//! Provide DPDK's testpmd from Debian's packages, with its memif driver.
//!
//! A newer one has the driver for AF_XDP.
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
/// The packages of a release that names them otherwise.
///
/// They include those that it must not take from the machine.
const OTHERS_OF_TRIXIE: [(&str, &str); 14] = [
    ("libarchive.so.13", "libarchive13t64"),
    ("libc.so.6", "libc6"),
    ("libcap.so.2", "libcap2"),
    ("libcrypto.so.3", "libssl3t64"),
    ("libdbus-1.so.3", "libdbus-1-3"),
    ("libelf.so.1", "libelf1t64"),
    ("libgcc_s.so.1", "libgcc-s1"),
    ("libm.so.6", "libc6"),
    ("libpcap.so.0.8", "libpcap0.8t64"),
    ("libssl.so.3", "libssl3t64"),
    ("libsystemd.so.0", "libsystemd0"),
    ("libxdp.so.1", "libxdp1"),
    ("libz.so.1", "zlib1g"),
    ("libzstd.so.1", "libzstd1"),
];
/// Libraries of libraries of libraries: deeper they do not go.
const ROUNDS: usize = 12;

/// One testpmd.
struct Kit {
    /// Its directory among the tools.
    directory: &'static str,
    /// The release it is of; none is the machine's own.
    release: Option<&'static str>,
    /// Drivers that testpmd only loads when it is told to, as packages are called.
    drivers: &'static [&'static str],
}

/// The machine's testpmd, with memif, and TAP to compare it with.
const OWN: Kit = Kit {
    directory: "dpdk",
    release: None,
    drivers: &["librte-net-memif", "librte-net-tap", "librte-mempool-ring"],
};
/// The testpmd that asks an agent for its sockets.
///
/// `use_cni` came with 23.03, `dp_path` with 24.07. It brings its own C library.
const NEWER: Kit = Kit {
    directory: "dpdk-afxdp",
    release: Some("trixie"),
    drivers: &["librte-net-af-xdp", "librte-mempool-ring"],
};

/// Returns the directory of testpmd, in which everything has its usual place.
///
/// It is fetched if it is not there.
///
/// # Errors
/// apt has no such packages or cannot be reached, or a library is needed that nothing is known of.
pub(crate) fn unpack() -> Result<PathBuf> {
    OWN.unpack()
}

/// The same of the one with AF_XDP.
///
/// # Errors
/// As of [`unpack`].
pub(crate) fn unpack_afxdp() -> Result<PathBuf> {
    NEWER.unpack()
}

impl Kit {
    fn unpack(&self) -> Result<PathBuf> {
        let root = workspace::tools().join(self.directory);
        let complete = root.join("complete");
        let lacking: Vec<&str> = self
            .drivers
            .iter()
            .copied()
            .filter(|driver| !has_driver(&root, driver))
            .collect();
        let is_complete = complete.is_file();
        if is_complete && lacking.is_empty() {
            return Ok(root);
        }
        say(format!(
            "fetching testpmd and its libraries from Debian into {}",
            root.display()
        ));
        let packages = root.join("packages");
        fs::create_dir_all(&packages).with_context(|| format!("making {}", packages.display()))?;
        let apt = self.apt(&root)?;
        if !is_complete {
            fetch(&apt, &root, &[TESTPMD.to_owned()])?;
            if self.release.is_some() {
                fetch(&apt, &root, &["libc6".to_owned()])?;
            }
        }
        let abi = self.abi(&root)?;
        let drivers: Vec<String> = lacking
            .iter()
            .map(|driver| format!("{driver}{abi}"))
            .collect();
        if !drivers.is_empty() {
            fetch(&apt, &root, &drivers)?;
        }
        for _ in 0..ROUNDS {
            let missing = self.missing(&root)?;
            if missing.is_empty() {
                fs::write(&complete, "").context("marking testpmd as complete")?;
                return Ok(root);
            }
            // Those of the machine that come first want others, which are gone with them.
            let packages = missing.iter().map(|library| self.package(library));
            let (known, unknown): (Vec<_>, Vec<_>) = packages.partition(Result::is_ok);
            let mut wanted: Vec<String> = known.into_iter().flatten().collect();
            if wanted.is_empty() {
                unknown.into_iter().collect::<Result<Vec<_>>>()?;
            }
            wanted.sort();
            wanted.dedup();
            fetch(&apt, &root, &wanted)?;
        }
        bail!("testpmd still lacks {}", self.missing(&root)?.join(", "))
    }

    /// Returns the suffix of this DPDK's library packages: a library's number.
    ///
    /// It is that of a library that testpmd lacks, or has.
    fn abi(&self, root: &Path) -> Result<String> {
        let missing = self.missing(root)?;
        let present = fs::read_dir(libraries(root)?)
            .into_iter()
            .flatten()
            .flatten();
        let present = present.map(|entry| entry.file_name().to_string_lossy().into_owned());
        missing
            .into_iter()
            .chain(present)
            .find_map(|name| Some(name.strip_prefix(EAL)?.split('.').next()?.to_owned()))
            .with_context(|| format!("testpmd does not need {EAL}*"))
    }

    /// Returns options of apt.
    ///
    /// Another release has its lists in the directory, from where the machine has its own: the machine's
    /// are not touched.
    fn apt(&self, root: &Path) -> Result<Vec<String>> {
        let Some(release) = self.release else {
            return Ok(vec!["APT::Sandbox::User=root".to_owned()]);
        };
        let state = root.join("apt");
        for directory in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(state.join(directory)).context("making a place for apt's lists")?;
        }
        let known = [
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Label: Debian",
            "Created-By: Packages",
        ];
        let known = capture(Command::new("apt-get").args(known))?;
        let from = known
            .lines()
            .next()
            .context("apt knows no mirror of Debian")?;
        let sources = state.join("sources.list");
        let key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
        fs::write(&sources, format!("deb {key} {from} {release} main\n"))
            .context("naming the release to apt")?;
        let at = |name: &str| state.join(name).display().to_string();
        let options = vec![
            "APT::Sandbox::User=root".to_owned(),
            format!("Dir::Etc::sourcelist={}", sources.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State={}", state.display()),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", state.display()),
            "Dir::State::status=/dev/null".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ];
        execute(apt_get(&options).args(["update", "--quiet"]))?;
        Ok(options)
    }

    /// Libraries that neither `root` has nor, for its own release, the machine.
    fn missing(&self, root: &Path) -> Result<Vec<String>> {
        let libraries = libraries(root)?;
        let mut objects = vec![root.join("usr/bin/dpdk-testpmd")];
        let drivers: Vec<String> = self.drivers.iter().map(|name| file_of(name)).collect();
        for entry in fs::read_dir(&libraries).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if drivers.iter().any(|driver| name.starts_with(driver)) {
                objects.push(entry.path());
            }
        }
        let mut missing = Vec::new();
        for object in objects {
            let text = match self.release {
                None => capture(
                    Command::new("ldd")
                        .arg(&object)
                        .env("LD_LIBRARY_PATH", &libraries),
                )?,
                Some(_) => capture(
                    Command::new(loader(&libraries)?)
                        .arg("--library-path")
                        .arg(&libraries)
                        .arg(&object)
                        // As `ldd` does it: `--list` ends at the first that is missing.
                        .env("LD_TRACE_LOADED_OBJECTS", "1"),
                )?,
            };
            missing.extend(match self.release {
                None => not_found(&text),
                Some(_) => not_below(&text, root),
            });
        }
        missing.sort();
        missing.dedup();
        Ok(missing)
    }

    /// The package of a library.
    fn package(&self, library: &str) -> Result<String> {
        if self.release.is_some()
            && let Some((_, package)) = OTHERS_OF_TRIXIE.iter().find(|(name, _)| *name == library)
        {
            return Ok((*package).to_owned());
        }
        package(library)
    }
}

/// The start of the name of a driver's file.
fn file_of(package: &str) -> String {
    format!("{}.so.", package.replace('-', "_"))
}

fn has_driver(root: &Path, package: &str) -> bool {
    let file = file_of(package);
    let entries = libraries(root).and_then(|path| Ok(fs::read_dir(path)?));
    let mut entries = entries.into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with(&file))
}

fn apt_get(options: &[String]) -> Command {
    let mut command = Command::new("apt-get");
    for option in options {
        command.args(["-o", option]);
    }
    command
}

/// Downloads packages and unpacks them.
fn fetch(apt: &[String], root: &Path, packages: &[String]) -> Result<()> {
    let place = root.join("packages");
    execute(
        apt_get(apt)
            .args(["download", "--quiet"])
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
    merge(root)
}

/// Moves libraries from `lib` to `usr/lib`.
///
/// bookworm's packages have some in the first, which a system has as a link to the second.
fn merge(root: &Path) -> Result<()> {
    let to = libraries(root)?;
    let Some(architecture) = to.file_name() else {
        return Ok(());
    };
    let from = root.join("lib").join(architecture);
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(&to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(&from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry.with_context(|| format!("reading {}", from.display()))?;
        fs::rename(entry.path(), to.join(entry.file_name()))
            .with_context(|| format!("moving {}", entry.path().display()))?;
    }
    Ok(())
}

/// The dynamic loader next to the libraries.
fn loader(libraries: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(libraries).context("reading what was unpacked")?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let is_loader = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ld-linux")
    };
    paths.find(is_loader).context("libc6 has no loader")
}

/// The directory of libraries: its name has the architecture.
fn libraries(root: &Path) -> Result<PathBuf> {
    let arch = capture(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))
        .or_else(|_| capture(Command::new("cc").arg("-dumpmachine")))
        .context("the name of the directory of libraries")?;
    Ok(root.join("usr/lib").join(arch.trim()))
}

/// Lists the libraries that `ldd` did not find.
fn not_found(text: &str) -> Vec<String> {
    let missing = text.lines().filter(|line| line.ends_with("not found"));
    let names = missing.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Lists the libraries that the loader did not find below `root`.
fn not_below(text: &str, root: &Path) -> Vec<String> {
    let found = text
        .lines()
        .filter_map(|line| line.trim().split_once(" => "));
    let elsewhere = found.filter(|(_, place)| !Path::new(place).starts_with(root));
    elsewhere.map(|(name, _)| name.to_owned()).collect()
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

    /// A library that only `lib` has is found in no directory that testpmd is given.
    #[test]
    fn libraries_of_the_short_directory_are_moved_beside_the_others() {
        let root = tempfile::tempdir().unwrap();
        let to = libraries(root.path()).unwrap();
        let from = root.path().join("lib").join(to.file_name().unwrap());
        merge(root.path()).unwrap();
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("libnl-3.so.200.26.0"), "library").unwrap();
        std::os::unix::fs::symlink("libnl-3.so.200.26.0", from.join("libnl-3.so.200")).unwrap();
        merge(root.path()).unwrap();
        assert_eq!(fs::read(to.join("libnl-3.so.200")).unwrap(), b"library");
        assert!(!from.join("libnl-3.so.200").exists());
    }

    /// With another C library, what the machine has may not fit.
    #[test]
    fn another_release_takes_no_library_of_the_machine() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibrte_eal.so.25 => not found\n\
                    \tlibc.so.6 => /kit/usr/lib/libc.so.6 (0x2)\n\tlibbpf.so.1 => /lib/libbpf.so.1 (0x3)\n";
        let missing = not_below(text, Path::new("/kit"));
        assert_eq!(missing, ["librte_eal.so.25", "libbpf.so.1"]);
        assert_eq!(NEWER.package("libelf.so.1").unwrap(), "libelf1t64");
        assert_eq!(OWN.package("libelf.so.1").unwrap(), "libelf1");
    }
}
