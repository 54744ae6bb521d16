//! Attaching `x_uplink`, the XDP dispatcher, to interfaces of the node.
//!
//! Always by a pinned link: the kernel gives it only where no program is, and lets no process replace it. So
//! ours takes no place of others, and others do not take ours by mistake.

use std::fs;
use std::io;
use std::path::Path;

use aya::programs::links::FdLink;
use aya::programs::xdp::{XdpError, XdpMode as Flags};
use aya::programs::{ProgramError, Xdp};
use aya_obj::programs::XdpAttachType;

use crate::error::DatapathError;
use crate::hook::Hook;
use crate::pin::PinDir;
use crate::programs::{Side, X_UPLINK};

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before there is an skb.
    Native,
    /// In the kernel's stack, for any driver.
    Generic,
}

impl XdpMode {
    const fn flags(self) -> Flags {
        match self {
            Self::Native => Flags::Driver,
            Self::Generic => Flags::Skb,
        }
    }
}

impl Hook {
    /// Attaches the XDP dispatcher to an interface that has no program.
    ///
    /// `Some`: the reason of driver or kernel to refuse it; nothing was done.
    ///
    /// # Errors
    /// When it cannot be pinned, and so is not attached.
    pub fn attach_xdp(
        &self,
        ifindex: u32,
        mode: XdpMode,
    ) -> Result<Option<io::Error>, DatapathError> {
        let mut program = self.xdp(&self.serve(Side::Early)?)?;
        let interface = format!("the interface with index {ifindex}");
        let id = match program.attach_to_if_index(ifindex, mode.flags()) {
            Ok(id) => id,
            Err(error) => return refusal(error, interface).map(Some),
        };
        let attach = |source| DatapathError::Attach {
            interface: interface.clone(),
            source: Box::new(source),
        };
        let link = program.take_link(id).map_err(attach)?;
        let link = FdLink::try_from(link).map_err(|source| DatapathError::Link {
            operation: "take",
            interface,
            source: Box::new(source),
        })?;
        let path = self.pins().xdp_link(ifindex);
        // One left by an interface that had the index before points nowhere.
        self.forget_xdp(ifindex)?;
        link.pin(&path).map_err(|source| DatapathError::PinObject {
            path,
            source: Box::new(source),
        })?;
        Ok(None)
    }

    /// Detaches the XDP dispatcher from an interface, as soon as the kernel gets to it.
    ///
    /// A missing one is no error.
    ///
    /// # Errors
    /// When the pin cannot be removed.
    pub fn forget_xdp(&self, ifindex: u32) -> Result<(), DatapathError> {
        let path = self.pins().xdp_link(ifindex);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DatapathError::pin("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Interfaces that have a pinned XDP link, or had one.
    ///
    /// # Errors
    /// When the pins cannot be listed.
    pub fn xdp_links(&self) -> Result<Vec<u32>, DatapathError> {
        self.pins().xdp_linked()
    }

    /// The kernel's id of the XDP dispatcher, by which it is known on an interface.
    ///
    /// None before it is attached first.
    ///
    /// # Errors
    /// When its pin is refused.
    pub fn xdp_id(&self) -> Result<Option<u32>, DatapathError> {
        let pin = self.pins().root().join(X_UPLINK);
        if !pin.exists() {
            return Ok(None);
        }
        let info = self.xdp(&pin)?.info();
        let info = info.map_err(DatapathError::program("look at", X_UPLINK))?;
        Ok(Some(info.id()))
    }

    fn xdp(&self, pin: &Path) -> Result<Xdp, DatapathError> {
        Xdp::from_pin(pin, XdpAttachType::Interface)
            .map_err(DatapathError::program("open", X_UPLINK))
    }

    fn pins(&self) -> &PinDir {
        &self.pins
    }
}

/// Returns the kernel's error, if the error is one of the kernel.
pub(crate) fn refusal(error: ProgramError, interface: String) -> Result<io::Error, DatapathError> {
    let number = match &error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        ProgramError::XdpError(XdpError::NetlinkError(error)) => error.raw_os_error(),
        _ => None,
    };
    match number {
        Some(number) => Ok(io::Error::from_raw_os_error(number)),
        None => Err(DatapathError::Attach {
            interface,
            source: Box::new(error),
        }),
    }
}
