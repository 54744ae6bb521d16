//! Makes TAP devices: links whose other end is a file (drivers/net/tun.c).
//!
//! Netlink cannot make one.
#![expect(
    unsafe_code,
    reason = "TUNSETIFF and TUNSETPERSIST, which rustix does not have"
)]

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Updater, ioctl};

use crate::connection::Connection;
use crate::error::Error;
use crate::link::{AddrGenMode, Link, LinkChange, check_name};

const DEVICE: &str = "/dev/net/tun";
/// `_IOW('T', 202, int)`.
const TUNSETIFF: u32 = 0x4004_54ca;
/// `_IOW('T', 203, int)`.
const TUNSETPERSIST: u32 = 0x4004_54cb;
/// Ethernet frames.
const IFF_TAP: u16 = 0x0002;
/// No header of four bytes before each frame.
const IFF_NO_PI: u16 = 0x1000;
/// A `struct virtio_net_hdr` of ten bytes before each frame (linux/virtio_net.h).
const IFF_VNET_HDR: u16 = 0x4000;
/// It must not be there yet.
const IFF_TUN_EXCL: u16 = 0x8000;
/// Bytes of a name in [`Ifreq`], the terminator included.
const IFNAMSIZ: usize = 16;

/// `struct ifreq` (linux/if.h): a name, and a union of 24 bytes.
///
/// The first two bytes of the union are flags.
type Ifreq = [u8; 40];

/// A TAP device to be made, without offloads.
///
/// Packets that are read from its file are whole, with finished checksums, and no longer than its MTU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// Interface name.
    pub name: String,
    /// MTU, bytes.
    pub mtu: u32,
    /// `ifalias`.
    pub alias: String,
}

impl Connection {
    /// Makes the device, down, in the calling thread's namespace; returns its index.
    ///
    /// The namespace must be the connection's. The device stays when no process has its file open.
    ///
    /// # Errors
    /// [`Error::CreateTap`], with `EBUSY` if the name is taken; nothing is left behind.
    pub fn create_tap(&mut self, spec: &TapSpec) -> Result<u32, Error> {
        let file = attach(&spec.name, IFF_TUN_EXCL)?;
        let Link { ifindex, .. } =
            self.by_name(&spec.name)?
                .ok_or_else(|| Error::LinkVanished {
                    link: spec.name.as_str().into(),
                })?;
        self.reconfigure(
            ifindex,
            &LinkChange {
                mtu: Some(spec.mtu),
                alias: Some(spec.alias.clone()),
                ..LinkChange::default()
            },
        )?;
        // A kernel without IPv6 makes no addresses.
        let silent = LinkChange {
            addr_gen_mode: Some(AddrGenMode::None),
            ..LinkChange::default()
        };
        match self.reconfigure(ifindex, &silent) {
            Err(Error::ChangeLink { source, .. }) if source.errno() == Errno::AFNOSUPPORT => {}
            other => other?,
        }
        // Last: before this the device goes with the file.
        // SAFETY: the request takes a number and no pointer.
        let request = unsafe { IntegerSetter::<TUNSETPERSIST>::new_usize(1) };
        // SAFETY: as the request says; the file is that of a TAP device.
        unsafe { ioctl(&file, request) }.map_err(refused(&spec.name))?;
        Ok(ifindex)
    }

    /// Opens the file of the TAP device `ifindex`, as [`Self::create_tap`] makes one.
    ///
    /// Reads and writes do not wait. With `headers` each frame is behind a `struct virtio_net_hdr` of ten bytes in
    /// the machine's byte order, which names no offload in what is read, and may name any in what is written.
    ///
    /// # Errors
    /// [`Error::CreateTap`]: somebody has it open (`EBUSY`), or it is no TAP device (`EINVAL`).
    /// [`Error::LinkVanished`]: there is none with this index.
    pub fn open_tap(&mut self, name: &str, ifindex: u32, headers: bool) -> Result<OwnedFd, Error> {
        let vanished = || Error::LinkVanished { link: name.into() };
        let is_it = |link: Option<Link>| link.is_some_and(|link| link.ifindex == ifindex);
        if !is_it(self.by_name(name)?) {
            return Err(vanished());
        }
        let file = attach(name, if headers { IFF_VNET_HDR } else { 0 })?;
        // With no device of this name one was made just now, with nothing at its ingress; it goes with
        // its file.
        if is_it(self.by_name(name)?) {
            Ok(file)
        } else {
            Err(vanished())
        }
    }
}

fn attach(name: &str, flags: u16) -> Result<OwnedFd, Error> {
    check_name(name)?;
    let file = open(
        DEVICE,
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .map_err(|source| Error::OpenTun { source })?;
    let mut request: Ifreq = [0; 40];
    for (to, from) in request.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let flags = (IFF_TAP | IFF_NO_PI | flags).to_ne_bytes();
    for (to, from) in request.iter_mut().skip(IFNAMSIZ).zip(flags) {
        *to = from;
    }
    set_interface(file.as_fd(), &mut request).map_err(refused(name))?;
    Ok(file)
}

fn set_interface(file: impl AsFd, request: &mut Ifreq) -> Result<(), Errno> {
    // SAFETY: the kernel reads and writes a `struct ifreq`, which has the length of an `Ifreq`. Every
    // pattern of bytes is one.
    let updater = unsafe { Updater::<TUNSETIFF, Ifreq>::new(request) };
    // SAFETY: as the request says; on a file that is no tun device it is unknown and refused.
    unsafe { ioctl(file, updater) }
}

fn refused(name: &str) -> impl FnOnce(Errno) -> Error {
    let name = name.to_owned();
    move |source| Error::CreateTap { name, source }
}
