//! The two sockets of a port: a name in the pod's namespace, which needs no file and no permission,
//! and a file on the node, for pods that have its directory mounted.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use memif::Address;
use netdev::Netns;

use super::{SwitchError, name_in_pod};
use crate::error::AgentError;
use crate::record::Attachment;

/// Of the file, in the directory of its port.
const FILE: &str = "memif.sock";

/// The directory of all ports is root's: a pod gets that of its own port mounted.
const ALL_MODE: u32 = 0o700;
/// DPDK's clients refuse a socket in a directory that they may not write to (drivers/net/memif).
const ONE_MODE: u32 = 0o777;
/// Whoever has the directory is the pod, under whatever user its programs run.
const FILE_MODE: u32 = 0o666;

/// The file of the port with this host end.
pub(super) fn path(all: &Path, host: &str) -> PathBuf {
    all.join(host).join(FILE)
}

/// Makes both, or one for a port without a file. They listen.
pub(super) fn listen(record: &Attachment, netns: &Netns) -> Result<Vec<OwnedFd>, AgentError> {
    let name = Address::Abstract(name_in_pod(&record.key.ifname).into_bytes());
    let listening = |made: Result<OwnedFd, memif::Error>| {
        made.map_err(|source| AgentError::from(SwitchError::Listen { source }))
    };
    let mut sockets = vec![listening(netns.run_in(|| name.listen())?)?];
    let Some((one, path)) = place(record) else {
        return Ok(sockets);
    };
    let failed = |source| SwitchError::Directory {
        path: one.to_owned(),
        source,
    };
    make(one).map_err(failed)?;
    // What is in the port's directory may be the pod's work, links that lead elsewhere too: the file
    // is made ready where no pod gets to, and put in its place then.
    let new = one.with_extension("new");
    sockets.push(listening(Address::Path(new.clone()).listen())?);
    fs::set_permissions(&new, Permissions::from_mode(FILE_MODE))
        .and_then(|()| fs::rename(&new, path))
        .map_err(failed)?;
    Ok(sockets)
}

/// The directory of the port, and the file in it.
fn place(record: &Attachment) -> Option<(&Path, &Path)> {
    let path = record.socket_path.as_deref()?;
    Some((path.parent()?, path))
}

fn make(one: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(ALL_MODE)
        .create(one)?;
    fs::set_permissions(one, Permissions::from_mode(ONE_MODE))
}

/// Removes the file and whatever else the pod has put beside it.
pub(super) fn remove(record: &Attachment) -> Result<(), SwitchError> {
    let Some((one, _)) = place(record) else {
        return Ok(());
    };
    match fs::remove_dir_all(one) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(SwitchError::Directory {
            path: one.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}
