//! Attach the dispatchers to links.
//!
//! These are `d_pod` to the host end of a pod link, `d_overlay` to the tunnel device, `d_gateway` to the
//! links of gateways, `d_uplink` to interfaces of the node, `d_to_pod` to the host end of a pod link on the
//! way out. The one in XDP is attached in `xdp.rs`.
//!
//! First as a TC filter, which every kernel has and newer ones attach without waiting. Then,
//! where the kernel has TCX (6.6; found out by trying, because distributions backport), a pinned
//! link in front of it: a link belongs to its pin, and no tool that tidies qdiscs takes it away.
//! Both call the same dispatcher, which never lets a packet go on to the next program.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use aya::programs::links::{FdLink, LinkOrder};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};

use crate::error::DatapathError;
use crate::pin::PinDir;
use crate::programs::{Programs, Side};

/// A program that is attached once, and calls whatever is behind it in `ROOT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dispatcher {
    /// At the host end of a pod's link.
    Pod,
    /// On the way out of a pod's link, where the node's stack sends to it.
    ///
    /// Packets that it lets pass go on as without it.
    ToPod,
    /// At the tunnel device.
    Overlay,
    /// At the node's end of a gateway's link.
    Gateway,
    /// At an interface of the node, for packets of other nodes.
    ///
    /// Packets that are not for a pod go on to the next filter, and to the node.
    Uplink,
}

impl Dispatcher {
    /// Its name in the object, under `root/`, and in what `tc` shows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "d_pod",
            Self::ToPod => "d_to_pod",
            Self::Overlay => "d_overlay",
            Self::Gateway => "d_gateway",
            Self::Uplink => "d_uplink",
        }
    }

    const fn side(self) -> Side {
        match self {
            Self::Pod => Side::Pod,
            Self::ToPod => Side::ToPod,
            Self::Overlay => Side::Overlay,
            Self::Gateway => Side::Gateway,
            Self::Uplink => Side::Uplink,
        }
    }
}

/// `EINVAL`: the kernel does not know the attach type.
const EINVAL: i32 = 22;
/// `EOPNOTSUPP`: it knows it and was built without it.
const EOPNOTSUPP: i32 = 95;

/// How the dispatcher is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// A pinned TCX link, with the filter behind it.
    Tcx,
    /// A cls_bpf filter, in an `ingress` qdisc or an older agent's clsact.
    Filter,
}

impl HookKind {
    /// The word used in output.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Filter => "filter",
        }
    }
}

/// Attaches and detaches. Calls block, so none belongs on an async thread.
#[derive(Debug, Clone)]
pub struct Hook {
    pub(crate) pins: PinDir,
    programs: Programs,
    tcx: Arc<OnceLock<bool>>,
}

impl Hook {
    pub(crate) fn new(pins: PinDir, programs: Programs) -> Self {
        Self {
            pins,
            programs,
            tcx: Arc::default(),
        }
    }

    /// A dispatcher, for the TC filter of an interface.
    ///
    /// # Errors
    /// When its pin or a program behind it is refused.
    pub fn program(&self, dispatcher: Dispatcher) -> Result<OwnedFd, DatapathError> {
        let refused = |source| DatapathError::program("look at", dispatcher.name())(source);
        let program = self.dispatcher(dispatcher)?;
        let fd = program.fd().map_err(refused)?;
        fd.as_fd()
            .try_clone_to_owned()
            .map_err(|source| refused(source.into()))
    }

    /// Pins a TCX link at the interface, ahead of any filter; false without TCX.
    ///
    /// It cannot be removed by mistake. It waits for a grace period of the kernel, ten milliseconds with
    /// the netlink lock held, so do it when no request waits.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn promote(
        &self,
        dispatcher: Dispatcher,
        interface: &str,
        ifindex: u32,
    ) -> Result<bool, DatapathError> {
        if self.lacks_tcx() {
            return Ok(false);
        }
        let mut program = self.dispatcher(dispatcher)?;
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        match program.attach_with_options(interface, TcAttachType::Ingress, order) {
            Ok(id) => {
                self.tcx.get_or_init(|| true);
                let link = program.take_link(id).map_err(attach_error(interface))?;
                let link = FdLink::try_from(link).map_err(|source| DatapathError::Link {
                    operation: "take",
                    interface: interface.to_owned(),
                    source: Box::new(source),
                })?;
                let path = self.pins.link(ifindex);
                // One left by an interface that had the index before points nowhere.
                remove_file(&path)?;
                link.pin(&path).map_err(|source| DatapathError::PinObject {
                    path,
                    source: Box::new(source),
                })?;
                Ok(true)
            }
            // The answer of a kernel without TCX, unless it gave another before.
            Err(error) if self.tcx.get().is_none() && is_unsupported(&error) => {
                self.tcx.get_or_init(|| false);
                Ok(false)
            }
            Err(error) => Err(attach_error(interface)(error)),
        }
    }

    /// True once the kernel has said that it has no TCX.
    pub fn lacks_tcx(&self) -> bool {
        self.tcx.get() == Some(&false)
    }

    /// How an interface that was attached to is held.
    pub fn kind(&self, ifindex: u32) -> HookKind {
        if self.pins.link(ifindex).exists() {
            HookKind::Tcx
        } else {
            HookKind::Filter
        }
    }

    /// Forgets the link of an interface. The interface takes its filter with it.
    ///
    /// # Errors
    /// When the pin cannot be removed.
    pub fn forget(&self, ifindex: u32) -> Result<(), DatapathError> {
        remove_file(&self.pins.link(ifindex))
    }

    /// The kernel's id of a dispatcher, by which its filters are known.
    ///
    /// # Errors
    /// As [`Self::program`].
    pub fn dispatcher_id(&self, dispatcher: Dispatcher) -> Result<u32, DatapathError> {
        let info = self.dispatcher(dispatcher)?.info();
        Ok(info
            .map_err(DatapathError::program("look at", dispatcher.name()))?
            .id())
    }

    /// Ids of the TCX programs of an interface; none on a kernel without TCX.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn tcx_programs(&self, interface: &str) -> Result<Vec<u32>, DatapathError> {
        match SchedClassifier::query_tcx(interface, TcAttachType::Ingress) {
            Ok((_, programs)) => Ok(programs
                .iter()
                .map(aya::programs::ProgramInfo::id)
                .collect()),
            Err(error) if is_unsupported(&error) => Ok(Vec::new()),
            Err(error) => Err(attach_error(interface)(error)),
        }
    }

    /// Opens a dispatcher, which its first use pins.
    ///
    /// The programs behind it are loaded then, which takes some tenths of a second.
    fn dispatcher(&self, dispatcher: Dispatcher) -> Result<SchedClassifier, DatapathError> {
        let pin = self.serve(dispatcher.side())?;
        SchedClassifier::from_pin(pin).map_err(DatapathError::program("open", dispatcher.name()))
    }

    /// Returns the pin of a side's dispatcher, behind which the programs are.
    pub(crate) fn serve(&self, side: Side) -> Result<PathBuf, DatapathError> {
        self.programs.serve(side)?;
        Ok(self.programs.pin_of(side))
    }
}

fn attach_error(interface: &str) -> impl FnOnce(ProgramError) -> DatapathError {
    let interface = interface.to_owned();
    move |source| DatapathError::Attach {
        interface,
        source: Box::new(source),
    }
}

fn is_unsupported(error: &ProgramError) -> bool {
    match error {
        ProgramError::SyscallError(error) => {
            matches!(error.io_error.raw_os_error(), Some(EINVAL | EOPNOTSUPP))
        }
        _ => false,
    }
}

fn remove_file(path: &std::path::Path) -> Result<(), DatapathError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DatapathError::pin("remove", path)(error))
        }
        _ => Ok(()),
    }
}
