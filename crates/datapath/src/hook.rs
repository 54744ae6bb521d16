//! Attaching the dispatcher to the host end of a pod link: TCX where the kernel has it (6.6), a
//! clsact filter where it has not. Found out by trying, because distributions backport.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use aya::programs::links::{FdLink, LinkOrder};
use aya::programs::tc::{NlOptions, TcAttachOptions, TcError, TcHandle};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, tc};

use crate::error::DatapathError;
use crate::pin::PinDir;

/// The dispatcher's name in the object and under `root/`.
pub(crate) const DISPATCHER: &str = "d_pod";
/// Ours is the first filter of an interface, and there is one.
const PRIORITY: u16 = 1;
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// `EEXIST`: the interface has its clsact qdisc.
const EEXIST: i32 = 17;
/// `EINVAL`: the kernel does not know the attach type.
const EINVAL: i32 = 22;
/// `EOPNOTSUPP`: it knows it and was built without it.
const EOPNOTSUPP: i32 = 95;

/// How the dispatcher is attached on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// A pinned TCX link.
    Tcx,
    /// A cls_bpf filter in a clsact qdisc.
    Clsact,
}

impl HookKind {
    /// The word used in output.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }
}

/// Attaches and detaches; every call may block for a grace period of the kernel, so none belongs on
/// an async thread.
#[derive(Debug, Clone)]
pub struct Hook {
    pins: PinDir,
    kind: Arc<OnceLock<HookKind>>,
}

impl Hook {
    pub(crate) fn new(pins: PinDir) -> Self {
        Self { pins, kind: Arc::default() }
    }

    /// How this kernel does it; `None` until the first attachment has found out.
    pub fn kind(&self) -> Option<HookKind> {
        self.kind.get().copied()
    }

    /// Attaches the dispatcher to an interface that has none.
    ///
    /// # Errors
    /// When neither way works.
    pub fn attach(&self, interface: &str, ifindex: u32) -> Result<(), DatapathError> {
        let mut program = self.dispatcher()?;
        if self.kind() == Some(HookKind::Clsact) {
            return Self::attach_clsact(&mut program, interface);
        }
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        match program.attach_with_options(interface, TcAttachType::Ingress, order) {
            Ok(id) => {
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
                self.kind.get_or_init(|| HookKind::Tcx);
                Ok(())
            }
            Err(error) if self.kind().is_none() && is_unsupported(&error) => {
                Self::attach_clsact(&mut program, interface)?;
                self.kind.get_or_init(|| HookKind::Clsact);
                Ok(())
            }
            Err(error) => Err(attach_error(interface)(error)),
        }
    }

    /// Forgets the link of an interface. The interface takes a clsact filter with it.
    ///
    /// # Errors
    /// When the pin cannot be removed.
    pub fn forget(&self, ifindex: u32) -> Result<(), DatapathError> {
        remove_file(&self.pins.link(ifindex))
    }

    /// True when the dispatcher is the TCX program of the interface. On a kernel with clsact the
    /// filter cannot be seen from here: `None`.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn is_attached(&self, interface: &str) -> Result<Option<bool>, DatapathError> {
        let program = self.dispatcher()?;
        let ours = program.info().map_err(attach_error(interface))?.id();
        match SchedClassifier::query_tcx(interface, TcAttachType::Ingress) {
            Ok((_, programs)) => {
                let found = programs.iter().any(|program| program.id() == ours);
                Ok((found || self.kind() == Some(HookKind::Tcx)).then_some(found))
            }
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(attach_error(interface)(error)),
        }
    }

    fn dispatcher(&self) -> Result<SchedClassifier, DatapathError> {
        SchedClassifier::from_pin(self.pins.root().join(DISPATCHER))
            .map_err(DatapathError::program("open", DISPATCHER))
    }

    fn attach_clsact(program: &mut SchedClassifier, interface: &str) -> Result<(), DatapathError> {
        match tc::qdisc_add_clsact(interface) {
            Err(TcError::AlreadyAttached) | Ok(()) => {}
            Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(EEXIST) => {}
            Err(source) => {
                return Err(DatapathError::Clsact {
                    interface: interface.to_owned(),
                    source: Box::new(source),
                });
            }
        }
        let options = TcAttachOptions::Netlink(NlOptions {
            priority: PRIORITY,
            handle: HANDLE,
            ..NlOptions::default()
        });
        let id = program
            .attach_with_options(interface, TcAttachType::Ingress, options)
            .map_err(attach_error(interface))?;
        // Dropping the link would remove the filter; it has to outlive the agent.
        let link = ManuallyDrop::new(program.take_link(id).map_err(attach_error(interface))?);
        let _ = &link;
        Ok(())
    }
}

fn attach_error(interface: &str) -> impl FnOnce(ProgramError) -> DatapathError {
    let interface = interface.to_owned();
    move |source| DatapathError::Attach { interface, source: Box::new(source) }
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
