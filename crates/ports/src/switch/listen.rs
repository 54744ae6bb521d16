//! Two sockets of a port: a name in the pod's namespace, and a file on the node.
//!
//! The name needs no file and no permission. The file is for pods that have its directory mounted.

use std::os::fd::OwnedFd;
use std::path::Path;

use book::record::Attachment;
use memif::Address;
use netdev::Netns;

use super::describe::name_in_pod;
use super::error::SwitchError;
use crate::error::PortError;
use crate::sockets::{self, SOCKET_MODE};

/// Makes both. They listen.
pub(super) fn listen(record: &Attachment, netns: &Netns) -> Result<Vec<OwnedFd>, PortError> {
    let name = Address::Abstract(name_in_pod(&record.key.ifname).into_bytes());
    let at = |address: &Address| {
        let listening = address.listen();
        listening.map_err(|source| PortError::from(SwitchError::Listen { source }))
    };
    let mut listeners = vec![netns.run_in(|| at(&name))??];
    if let Some(path) = &record.socket_path {
        let by_file = |path: &Path| at(&Address::Path(path.to_owned()));
        listeners.push(sockets::publish(path, SOCKET_MODE, by_file)?);
    }
    Ok(listeners)
}
