//! Get a Debian kernel by its version: find, download, unpack and keep it.
//!
//! apt runs with package lists and a cache of its own under target/vm/apt: the system's
//! sources stay as they are, and nothing is installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{capture, execute, say};
use crate::{install, workspace};

/// Version, and the Debian release that ships it.
const SUITES: [(&str, &str); 4] = [
    ("5.10", "bullseye"),
    ("6.1", "bookworm"),
    ("6.12", "trixie"),
    ("sid", "sid"),
];

/// Asked in this order; a release that left the first is in the second.
const MIRRORS: [&str; 2] = [
    "http://deb.debian.org/debian",
    "http://archive.debian.org/debian",
];

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The kernel for virtual machines: it boots faster, and has every needed module.
///
/// It is smaller.
const METAPACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel on disk.
pub(crate) struct Kernel {
    /// `uname -r`.
    pub(crate) release: String,
    /// The bootable image.
    pub(crate) image: PathBuf,
    /// `lib/modules/<release>`.
    pub(crate) modules: PathBuf,
    /// Where files made for this kernel go.
    pub(crate) dir: PathBuf,
}

impl Kernel {
    /// Returns QEMU's `-cpu`, without features that QEMU 7.2 emulates wrongly.
    ///
    /// `cmpxchg16b`, which the slab allocator uses where it is offered, made one boot in four of Linux
    /// 6.12 fault (58 of 58 were good without); five-level paging makes 6.12 and newer fault, too.
    pub(crate) fn cpu(&self) -> &'static str {
        if version(&self.release) < (6, 12) {
            "max,cx16=off"
        } else {
            "max,cx16=off,la57=off"
        }
    }
}

/// Version of a kernel by its release: 5 and 10 of `5.10.0-32-cloud-amd64`.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(['.', '-', '+'])
        .map_while(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Versions of all kernels that the machines can have.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    SUITES.iter().map(|(version, _)| *version)
}

/// The Debian release that ships this kernel version.
///
/// # Errors
/// No release does; the message lists the versions there are.
pub(crate) fn suite(version: &str) -> Result<&'static str> {
    match SUITES.iter().find(|(known, _)| *known == version) {
        Some((_, suite)) => Ok(suite),
        None => {
            let known = SUITES.map(|(known, _)| known).join(", ");
            bail!("no Debian release is known to ship kernel `{version}`; choose from {known}")
        }
    }
}

/// The kernel, from the cache under target/vm or else from the archive.
pub(crate) fn fetch(version: &str) -> Result<Kernel> {
    let suite = suite(version)?;
    let dir = workspace::target().join("vm").join(version);
    let root = dir.join("root");
    if !root.is_dir() {
        let unpacked = dir.join("root.new");
        // Left by a run that was stopped half-way, or not there.
        let _ = fs::remove_dir_all(&unpacked);
        fs::create_dir_all(&unpacked)
            .with_context(|| format!("creating {}", unpacked.display()))?;
        download(suite, &unpacked)?;
        fs::rename(&unpacked, &root).with_context(|| format!("renaming to {}", root.display()))?;
    }
    let kernel = locate(&root, dir.clone())
        .with_context(|| format!("{} (remove it to download again)", root.display()))?;
    if version != suite && !is_version(&kernel.release, version) {
        bail!(
            "Debian {suite} ships Linux {}, not {version}",
            kernel.release
        );
    }
    Ok(kernel)
}

/// Whether `5.10.0-32-cloud-amd64` is a 5.10.
fn is_version(release: &str, version: &str) -> bool {
    release
        .strip_prefix(version)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

fn download(suite: &str, into: &Path) -> Result<()> {
    if env::consts::ARCH != "x86_64" {
        bail!(
            "the vm tier boots amd64 kernels; this machine is {}",
            env::consts::ARCH
        );
    }
    if !Path::new(KEYRING).exists() {
        install::apt(&["debian-archive-keyring".to_owned()])?;
    }
    let apt = Apt::open(suite)?;
    let packages = apt.kernel_packages()?;
    say(format!(
        "downloading {} from Debian {suite}",
        packages.join(", ")
    ));
    let debs = into.join("debs");
    fs::create_dir_all(&debs).with_context(|| format!("creating {}", debs.display()))?;
    execute(
        apt.command("apt-get")
            .args(["download", "--quiet"])
            .args(&packages)
            .current_dir(&debs),
    )?;
    for deb in fs::read_dir(&debs).context("the downloaded packages")? {
        execute(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(deb?.path())
                .arg(into),
        )?;
    }
    fs::remove_dir_all(&debs).context("removing the downloaded packages")
}

/// apt for one suite, in a directory of its own.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn open(suite: &str) -> Result<Self> {
        let apt = Self {
            dir: workspace::target().join("vm/apt").join(suite),
        };
        for dir in ["state/lists/partial", "cache/archives/partial", "empty"] {
            fs::create_dir_all(apt.dir.join(dir)).context("apt's private directories")?;
        }
        let chosen = env::var("PODNET_DEBIAN_MIRROR").ok();
        let mirrors = chosen
            .as_deref()
            .map_or(MIRRORS.to_vec(), |mirror| vec![mirror]);
        for mirror in &mirrors {
            let line = format!("deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n");
            fs::write(apt.dir.join("sources.list"), line).context("apt's private sources.list")?;
            say(format!(
                "reading the package list of Debian {suite} from {mirror}"
            ));
            if execute(apt.command("apt-get").args(["update", "--quiet"])).is_ok() {
                return Ok(apt);
            }
        }
        bail!(
            "Debian {suite} could not be read from {}; set PODNET_DEBIAN_MIRROR to a mirror that \
             has it, or update debian-archive-keyring if its signature was refused",
            mirrors.join(" nor ")
        )
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (key, value) in [
            ("Dir::Etc::sourcelist", self.dir.join("sources.list")),
            ("Dir::Etc::sourceparts", self.dir.join("empty")),
            ("Dir::Etc::preferencesparts", self.dir.join("empty")),
            ("Dir::State", self.dir.join("state")),
            ("Dir::Cache", self.dir.join("cache")),
        ] {
            command.arg("-o").arg(format!("{key}={}", value.display()));
        }
        // The directories are the caller's: apt's own user cannot write there. An old release's
        // list may be past its date.
        command.args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Acquire::Check-Valid-Until=false",
        ]);
        command.args(["-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3"]);
        // Desktop metadata, where the system's configuration asks for it.
        command.args([
            "-o",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ]);
        command
    }

    /// The kernel's package, and those its files are split into since Linux 7.
    fn kernel_packages(&self) -> Result<Vec<String>> {
        let image = depends(&self.show(METAPACKAGE)?, "linux-image-")
            .into_iter()
            .next()
            .with_context(|| format!("{METAPACKAGE} depends on no kernel"))?;
        let parts = self.show(&image)?;
        let mut packages = depends(&parts, "linux-binary-");
        packages.extend(depends(&parts, "linux-modules-"));
        packages.push(image);
        Ok(packages)
    }

    fn show(&self, package: &str) -> Result<String> {
        capture(
            self.command("apt-cache")
                .args(["show", "--no-all-versions", package]),
        )
    }
}

/// The packages named in a control record's `Depends` that start with `prefix`.
fn depends(record: &str, prefix: &str) -> Vec<String> {
    record
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "))
        .into_iter()
        .flat_map(|list| list.split([',', '|']))
        .filter_map(|one| one.split_whitespace().next())
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

fn locate(root: &Path, dir: PathBuf) -> Result<Kernel> {
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .filter_map(|place| fs::read_dir(root.join(place)).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.join("kernel").is_dir())
        .context("no lib/modules/<release>/kernel in the package")?;
    let release = modules
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let release = release.context("a module directory without a name")?;
    let image = [
        root.join("boot").join(format!("vmlinuz-{release}")),
        modules.join("vmlinuz"),
    ]
    .into_iter()
    .find(|path| path.is_file())
    .context("no vmlinuz in the package")?;
    Ok(Kernel {
        release,
        image,
        modules,
        dir,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_refused_with_the_known_ones() {
        let error = suite("4.19").unwrap_err().to_string();
        assert!(
            error.contains("4.19") && error.contains("5.10, 6.1, 6.12, sid"),
            "{error}"
        );
    }

    #[test]
    fn a_release_of_6_12_is_not_a_6_1() {
        assert!(is_version("6.1.0-50-cloud-amd64", "6.1"));
        assert!(is_version("6.12.107+deb13-cloud-amd64", "6.12"));
        assert!(!is_version("6.12.107+deb13-cloud-amd64", "6.1"));
    }

    #[test]
    fn kernel_parts_are_read_from_depends() {
        let record = "Package: linux-image-7.2.13\nDepends: dracut | linux-initramfs-tool, \
                      linux-binary-7.2.13 (= 7.2.13-1), linux-modules-7.2.13 (= 7.2.13-1)\n";
        assert_eq!(depends(record, "linux-binary-"), ["linux-binary-7.2.13"]);
        assert_eq!(depends(record, "linux-modules-"), ["linux-modules-7.2.13"]);
        assert_eq!(depends(record, "linux-image-"), [""; 0]);
    }

    #[test]
    fn what_the_emulator_gets_wrong_is_off_from_6_12() {
        let cpu = |release: &str| {
            let none = PathBuf::new();
            let (image, modules, dir) = (none.clone(), none.clone(), none);
            Kernel {
                release: release.to_owned(),
                image,
                modules,
                dir,
            }
            .cpu()
        };
        assert_eq!(cpu("6.1.0-50-cloud-amd64"), "max,cx16=off");
        assert_eq!(cpu("6.12.107+deb13-cloud-amd64"), "max,cx16=off,la57=off");
        assert_eq!(cpu("7.2.13+deb14-cloud-amd64"), "max,cx16=off,la57=off");
    }
}
