//! Attach `xsk_port` to the pod's end of AF_XDP ports.
//!
//! Each port has a program, a map and a link, pinned together.
//!
//! Beside the generations, not in one: what is attached there stays through restarts and upgrades, and so
//! do the sockets in its map.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aya::EbpfLoader;
use aya::maps::{Map, MapData, XskMap};
use aya::programs::Xdp;
use aya::programs::links::FdLink;
use aya::programs::xdp::XdpMode as Flags;
use aya_obj::programs::XdpAttachType;

use crate::error::DatapathError;
use crate::hook::Hook;
use crate::object;
use crate::xdp::refusal;

/// Name of the program, in its object.
const XSK_PORT: &str = "xsk_port";
/// Name of its map.
const XSKS: &str = "XSKS";
/// Names of the pins in a port's directory.
const PROGRAM: &str = "program";
const MAP: &str = "map";
const LINK: &str = "link";
/// Name of the map in a directory that a container has mounted.
///
/// DPDK and the device plugin for AF_XDP call it so.
pub const SHARED_MAP: &str = "xsks_map";
/// Mode of the shared map: every user of the pod may open it.
///
/// A process that has the directory is the pod's, under whatever user it runs.
const SHARED_MODE: u32 = 0o666;

/// The sockets of a port, by queue.
pub struct Sockets(XskMap<MapData>);

impl fmt::Debug for Sockets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Sockets({} queues)", self.queues())
    }
}

impl Sockets {
    /// How many queues there are.
    pub fn queues(&self) -> u32 {
        self.0.len()
    }

    /// Gives the packets of a queue to a socket, in place of the one before.
    ///
    /// `Some`: the kernel's reason to refuse it there; it has no rings, for example.
    ///
    /// # Errors
    /// When there is no such queue.
    pub fn insert(
        &mut self,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<Option<io::Error>, DatapathError> {
        match self.0.set(queue, socket.as_raw_fd(), 0) {
            Ok(()) => Ok(None),
            Err(aya::maps::MapError::SyscallError(error)) => Ok(Some(error.io_error)),
            Err(error) => Err(DatapathError::map("write", XSKS)(error)),
        }
    }

    /// Leaves what comes by a queue to the pod's own stack.
    ///
    /// # Errors
    /// When there is no such queue, or the kernel refuses.
    pub fn clear(&mut self, queue: u32) -> Result<(), DatapathError> {
        match self.0.unset(queue) {
            Err(aya::maps::MapError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            other => other.map_err(DatapathError::map("write", XSKS)),
        }
    }
}

impl Hook {
    /// Attaches `xsk_port` in the calling thread's namespace, and pins it.
    ///
    /// The pins have the name of the port; those that are there already are used again. `Some`: the
    /// kernel's reason to refuse it there, and nothing is left of it.
    ///
    /// # Errors
    /// When it cannot be loaded or pinned, and so is not attached.
    pub fn attach_xsk(
        &self,
        port: &str,
        ifindex: u32,
        queues: u32,
    ) -> Result<Option<io::Error>, DatapathError> {
        let attached = self.try_attach_xsk(port, ifindex, queues);
        if !matches!(attached, Ok(None)) {
            self.forget_xsk(port)?;
        }
        attached
    }

    fn try_attach_xsk(
        &self,
        port: &str,
        ifindex: u32,
        queues: u32,
    ) -> Result<Option<io::Error>, DatapathError> {
        let directory = self.pins.port(port);
        fs::create_dir_all(&directory).map_err(DatapathError::pin("create", &directory))?;
        let mut program = load(&directory, queues)?;
        let interface = || format!("port {port}");
        let id = match program.attach_to_if_index(ifindex, Flags::Driver) {
            Ok(id) => id,
            Err(error) => return refusal(error, interface()).map(Some),
        };
        let link = program
            .take_link(id)
            .map_err(|source| DatapathError::Attach {
                interface: interface(),
                source: Box::new(source),
            })?;
        let link = FdLink::try_from(link).map_err(|source| DatapathError::Link {
            operation: "take",
            interface: interface(),
            source: Box::new(source),
        })?;
        let path = directory.join(LINK);
        // One that its interface has lost, or that has lost its interface.
        remove(&path)?;
        link.pin(&path).map_err(|source| DatapathError::PinObject {
            path,
            source: Box::new(source),
        })?;
        Ok(None)
    }

    /// Returns the kernel's id of a port's program, as the interface shows it.
    ///
    /// `None` when something of it is not pinned.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn xsk_id(&self, port: &str) -> Result<Option<u32>, DatapathError> {
        let directory = self.pins.port(port);
        if [PROGRAM, MAP, LINK]
            .iter()
            .any(|pin| !directory.join(pin).exists())
        {
            return Ok(None);
        }
        let info = pinned_program(&directory)?.info();
        Ok(Some(
            info.map_err(DatapathError::program("look at", XSK_PORT))?
                .id(),
        ))
    }

    /// The sockets of a port.
    ///
    /// # Errors
    /// When its map is not pinned.
    pub fn sockets(&self, port: &str) -> Result<Sockets, DatapathError> {
        MapData::from_pin(self.pins.port(port).join(MAP))
            .and_then(Map::from_map_data)
            .and_then(XskMap::try_from)
            .map(Sockets)
            .map_err(DatapathError::map("open", XSKS))
    }

    /// A descriptor of the map of a port, for who inserts sockets himself.
    ///
    /// # Errors
    /// When it is not pinned.
    pub fn xsk_map(&self, port: &str) -> Result<OwnedFd, DatapathError> {
        let path = self.pins.port(port).join(MAP);
        let map = MapData::from_pin(&path).map_err(DatapathError::map("open", XSKS))?;
        let fd = map.fd().as_fd().try_clone_to_owned();
        fd.map_err(DatapathError::pin("open", path))
    }

    /// Pins the map of a port in a directory too, for programs of the pod.
    ///
    /// The one that is there is replaced.
    ///
    /// # Errors
    /// When it cannot be pinned there.
    pub fn share_xsk(&self, port: &str, directory: &Path) -> Result<(), DatapathError> {
        let map = MapData::from_pin(self.pins.port(port).join(MAP))
            .map_err(DatapathError::map("open", XSKS))?;
        self.unshare_xsk(directory)?;
        let path = directory.join(SHARED_MAP);
        map.pin(&path).map_err(|source| DatapathError::PinObject {
            path: path.clone(),
            source: Box::new(source),
        })?;
        let mode = Permissions::from_mode(SHARED_MODE);
        fs::set_permissions(&path, mode).map_err(DatapathError::pin("open", path))
    }

    /// True when a directory has a map.
    pub fn has_shared_xsk(directory: &Path) -> bool {
        directory.join(SHARED_MAP).exists()
    }

    /// Removes the pin of [`Self::share_xsk`].
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn unshare_xsk(&self, directory: &Path) -> Result<(), DatapathError> {
        remove(&directory.join(SHARED_MAP))
    }

    /// Detaches `xsk_port`, as soon as the kernel gets to it, and forgets its sockets.
    ///
    /// A missing one is no error.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    pub fn forget_xsk(&self, port: &str) -> Result<(), DatapathError> {
        let directory = self.pins.port(port);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DatapathError::pin("remove", directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Names of the ports that have pins.
    ///
    /// # Errors
    /// When the pins cannot be listed.
    pub fn xsk_ports(&self) -> Result<Vec<String>, DatapathError> {
        self.pins.ports()
    }
}

fn pinned_program(directory: &Path) -> Result<Xdp, DatapathError> {
    Xdp::from_pin(directory.join(PROGRAM), XdpAttachType::Interface)
        .map_err(DatapathError::program("open", XSK_PORT))
}

/// Loads the program of a port, on a map of this size, and pins both.
///
/// Those that are pinned already are used.
fn load(directory: &Path, queues: u32) -> Result<Xdp, DatapathError> {
    let path = directory.join(PROGRAM);
    if path.exists() {
        return pinned_program(directory);
    }
    // A map that no program has is what a crash has left.
    remove(&directory.join(MAP))?;
    let object = object::of_xsk_port()?;
    let mut objects = EbpfLoader::new()
        // It has nothing to be relocated, and reading the kernel's types takes longer than the rest.
        .btf(None)
        .map_max_entries(XSKS, queues)
        .map_pin_path(XSKS, directory.join(MAP))
        .load(object)
        .map_err(|source| DatapathError::Load {
            source: Box::new(source),
        })?;
    let program = objects
        .program_mut(XSK_PORT)
        .ok_or(DatapathError::NoProgram { name: XSK_PORT })?;
    let program: &mut Xdp = program
        .try_into()
        .map_err(DatapathError::program("use", XSK_PORT))?;
    program
        .load()
        .map_err(DatapathError::program("load", XSK_PORT))?;
    program
        .pin(&path)
        .map_err(|source| DatapathError::PinObject {
            path,
            source: Box::new(source),
        })?;
    pinned_program(directory)
}

fn remove(path: &Path) -> Result<(), DatapathError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DatapathError::pin("remove", path)(error))
        }
        _ => Ok(()),
    }
}
