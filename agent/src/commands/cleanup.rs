//! `cleanup`: removes everything podnet has put on the node.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use datapath::{PinDir, bpffs};
use netdev::{Connection, LinkFilter};

use super::{Failure, print};
use crate::cli::CleanupOptions;
use crate::cni::tombstone;
use crate::ports::{ALIAS_PREFIX, HOST_PREFIX};

/// Removes links, pins, records and sockets; with `--dry-run` says which.
///
/// # Errors
/// When an agent runs, or something cannot be removed.
pub fn cleanup(options: &CleanupOptions) -> Result<(), Failure> {
    let places = &options.places;
    if UnixStream::connect(&places.socket).is_ok() {
        return Err(format!(
            "an agent answers on {}: stop it first, it would make everything anew",
            places.socket.display()
        )
        .into());
    }
    let verb = if options.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let mut count = 0;
    let mut say = |what: String| {
        count += 1;
        print(&format!("{verb} {what}"))
    };

    let mut netlink = Connection::open()?;
    let filter = LinkFilter {
        kind: Some("veth".to_owned()),
        name_prefix: Some(HOST_PREFIX.to_owned()),
        alias_prefix: Some(ALIAS_PREFIX.to_owned()),
    };
    for link in netlink.list(&filter)? {
        if !options.dry_run {
            netlink.delete(link.ifindex)?;
        }
        say(format!("link {}", link.name))?;
    }
    // Where there is no BPF file system there are no pins either.
    if let Ok(base) = bpffs::find(&places.bpffs) {
        let pins = PinDir::new(base);
        for path in pins.contents()? {
            let path = path.strip_prefix(pins.base()).unwrap_or(&path);
            say(format!("pin {}", places.bpffs.join(path).display()))?;
        }
        if !options.dry_run {
            pins.remove()?;
        }
    }
    let files = [
        places.state_dir.clone(),
        tombstone::directory(&places.socket),
        places.socket.clone(),
    ];
    for path in files {
        if exists(&path) {
            if !options.dry_run {
                remove(&path)?;
            }
            say(path.display().to_string())?;
        }
    }
    if count == 0 {
        print("nothing of podnet is on this node")?;
    }
    Ok(())
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn remove(path: &PathBuf) -> io::Result<()> {
    let is_dir = fs::symlink_metadata(path)?.is_dir();
    if is_dir {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}
