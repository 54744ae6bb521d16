//! Where things are pinned. Paths only, and the listing of what is there.
//!
//! ```text
//! <bpffs>/root/{ROOT,ROOT_MISSES,d_pod}     the dispatcher and what it calls; never replaced
//! <bpffs>/root/{ROOT_XDP,x_uplink}          the same in XDP
//! <bpffs>/links/<ifindex>                   TCX links
//! <bpffs>/links/xdp-<ifindex>               XDP links
//! <bpffs>/ports/<name>/{program,map,link}  AF_XDP ports
//! <bpffs>/devices/<resource>/<device>/xsks_map  the maps of those that are devices of Kubernetes
//! <bpffs>/state-<kind>-<layout digest>/<MAP>  state that outlives layouts of other maps
//! <bpffs>/v<ABI>-<layout digest>/<MAP>      the maps of one layout
//! <bpffs>/v<ABI>-<layout digest>/jump-<n>   one set of programs
//! <bpffs>/{state,v}…/served                 packets meet the maps here
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::bpffs::is_bpffs;
use crate::error::DatapathError;

/// Prefix of the names of pinned XDP links.
const XDP_LINK: &str = "xdp-";
/// Prefix of the names of directories with state that outlives layouts.
const STATE: &str = "state-";

/// The directory everything is pinned under.
#[derive(Debug, Clone)]
pub struct PinDir {
    base: PathBuf,
}

impl PinDir {
    /// Names the directory without touching it.
    pub fn new(base: PathBuf) -> Self {
        Self { base }
    }

    /// Creates what is missing, readable by root only.
    ///
    /// # Errors
    /// When the directory is not on a BPF file system.
    pub fn create(&self) -> Result<(), DatapathError> {
        if !is_bpffs(&self.base) {
            return Err(DatapathError::NotBpffs {
                path: self.base.clone(),
            });
        }
        for path in [self.base.clone(), self.root(), self.links()] {
            fs::create_dir_all(&path).map_err(DatapathError::pin("create", &path))?;
        }
        rustix::fs::chmod(&self.base, Mode::RWXU)
            .map_err(|errno| DatapathError::pin("restrict", &self.base)(errno.into()))
    }

    /// The directory itself.
    pub fn base(&self) -> &Path {
        &self.base
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.base.join("root")
    }

    pub(crate) fn links(&self) -> PathBuf {
        self.base.join("links")
    }

    pub(crate) fn link(&self, ifindex: u32) -> PathBuf {
        self.links().join(ifindex.to_string())
    }

    pub(crate) fn xdp_link(&self, ifindex: u32) -> PathBuf {
        self.links().join(format!("{XDP_LINK}{ifindex}"))
    }

    /// Returns the directory with the pins of an AF_XDP port.
    pub(crate) fn port(&self, name: &str) -> PathBuf {
        self.all_ports().join(name)
    }

    /// Where the directories are that containers with AF_XDP ports have mounted.
    pub fn devices(&self) -> PathBuf {
        self.base.join("devices")
    }

    fn all_ports(&self) -> PathBuf {
        self.base.join("ports")
    }

    /// Names of AF_XDP ports.
    pub(crate) fn ports(&self) -> Result<Vec<String>, DatapathError> {
        let path = self.all_ports();
        match fs::read_dir(&path) {
            Ok(entries) => Ok(entries
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(DatapathError::pin("list", &path)(error)),
        }
    }

    pub(crate) fn generation(&self, abi: u32, digest: &str) -> PathBuf {
        self.base.join(format!("v{abi}-{digest}"))
    }

    /// Directories of map layouts, whichever. What else is there is not ours.
    pub(crate) fn generations(&self) -> Result<Vec<PathBuf>, DatapathError> {
        self.directories_that(is_generation)
    }

    /// Returns the directory of a kind of state with a digest of its maps.
    pub(crate) fn state(&self, kind: &str, digest: &str) -> PathBuf {
        self.base.join(format!("{STATE}{kind}-{digest}"))
    }

    /// Lists the directories of a kind of state, whatever the layout of its maps.
    pub(crate) fn states(&self, kind: &str) -> Result<Vec<PathBuf>, DatapathError> {
        self.directories_that(|name| kind_of_state(name) == Some(kind))
    }

    fn directories_that(&self, fits: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, DatapathError> {
        let entries = match fs::read_dir(&self.base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(DatapathError::pin("list", &self.base)(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(DatapathError::pin("list", &self.base))?;
            if fits(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// The interfaces that have a pinned link.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn linked(&self) -> Result<Vec<u32>, DatapathError> {
        self.linked_as("")
    }

    /// The interfaces that have a pinned XDP link.
    pub(crate) fn xdp_linked(&self) -> Result<Vec<u32>, DatapathError> {
        self.linked_as(XDP_LINK)
    }

    fn linked_as(&self, prefix: &str) -> Result<Vec<u32>, DatapathError> {
        let path = self.links();
        match fs::read_dir(&path) {
            Ok(entries) => Ok(entries
                .filter_map(|entry| {
                    let name = entry.ok()?.file_name();
                    name.to_str()?.strip_prefix(prefix)?.parse().ok()
                })
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(DatapathError::pin("list", &path)(error)),
        }
    }

    /// Every pin, files first: what [`Self::remove`] would remove.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn contents(&self) -> Result<Vec<PathBuf>, DatapathError> {
        let mut found = Vec::new();
        for directory in self.directories()? {
            collect(&directory, &mut found)?;
        }
        Ok(found)
    }

    fn directories(&self) -> Result<Vec<PathBuf>, DatapathError> {
        let mut all = self.generations()?;
        // Of any kind: a later agent may have more of them.
        all.extend(self.directories_that(|name| kind_of_state(name).is_some())?);
        all.extend([self.devices(), self.all_ports(), self.links(), self.root()]);
        Ok(all)
    }

    /// Removes every pin of ours, and the directory when nothing else is in it.
    ///
    /// The programs stay attached where no link holds them.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    pub fn remove(&self) -> Result<(), DatapathError> {
        for directory in self.directories()? {
            match fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(DatapathError::pin("remove", directory)(error));
                }
                _ => {}
            }
        }
        match fs::remove_dir(&self.base) {
            // Somebody else's pins, or a mount point.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::DirectoryNotEmpty
                        | io::ErrorKind::ResourceBusy
                ) =>
            {
                Ok(())
            }
            other => other.map_err(DatapathError::pin("remove", &self.base)),
        }
    }
}

/// `v<ABI>-<16 hexadecimal digits>`.
fn is_generation(name: &str) -> bool {
    let parts = name.strip_prefix('v').and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(abi, digest)| abi.parse::<u32>().is_ok() && is_digest(digest))
}

/// Returns the kind in `state-<kind>-<16 hexadecimal digits>`.
fn kind_of_state(name: &str) -> Option<&str> {
    let (kind, digest) = name.strip_prefix(STATE)?.rsplit_once('-')?;
    let is_kind = !kind.is_empty() && kind.bytes().all(|letter| letter.is_ascii_lowercase());
    (is_kind && is_digest(digest)).then_some(kind)
}

fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn collect(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), DatapathError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DatapathError::pin("list", path)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(DatapathError::pin("list", path))?.path();
        if entry.is_dir() {
            collect(&entry, found)?;
        } else {
            found.push(entry);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory is the user's choice and may be shared: `--bpffs /sys/fs/bpf`.
    #[test]
    fn only_our_own_directories_are_listed_and_removed() {
        let base = std::env::temp_dir().join(format!("podnet-pins-{}", std::process::id()));
        let ours = [
            "root/ROOT",
            "links/7",
            "links/xdp-8",
            "ports/pn0a/map",
            "devices/blue/7/xsks_map",
            "v1-0123456789abcdef/PORTS",
            "state-drops-0123456789abcdef/DROPS",
            "state-later-0123456789abcdef/MAP",
        ];
        let others = [
            "cilium/map",
            "v1/map",
            "vpn",
            "v1-0123456789abcdeg/PORTS",
            "state-0123456789abcdef/MAP",
            "state-drops/MAP",
        ];
        for name in ours.iter().chain(&others) {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let pins = PinDir::new(base.clone());
        let mut listed = pins.contents().unwrap();
        listed.sort();
        let mut expected = ours.map(|name| base.join(name));
        expected.sort();
        assert_eq!(listed, expected);
        assert_eq!(pins.linked().unwrap(), [7]);
        assert_eq!(pins.xdp_linked().unwrap(), [8]);
        assert_eq!(pins.ports().unwrap(), ["pn0a"]);
        let drops = base.join("state-drops-0123456789abcdef");
        assert_eq!(pins.states("drops").unwrap(), [drops]);
        pins.remove().unwrap();
        assert!(ours.iter().all(|name| !base.join(name).exists()));
        assert!(others.iter().all(|name| base.join(name).exists()));
        for name in [
            "cilium",
            "v1",
            "v1-0123456789abcdeg",
            "state-0123456789abcdef",
            "state-drops",
        ] {
            fs::remove_dir_all(base.join(name)).unwrap();
        }
        fs::remove_file(base.join("vpn")).unwrap();
        pins.remove().unwrap();
        assert!(
            !base.exists(),
            "nothing of others is left, so the directory goes too"
        );
        pins.remove().unwrap();
    }
}
