//! Files that become regions: a peer's are checked, ours are sealed.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, FileType, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals,
    fstat, fstatfs, ftruncate, memfd_create,
};
use rustix::io::Errno;

use crate::error::{Error, Violation};
use crate::shm::Region;

/// `HUGETLBFS_MAGIC` (linux/magic.h).
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
/// How the kernel promises memory.
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// Maps a region of a peer.
///
/// A peer that could make its file smaller could kill us with SIGBUS. It cannot once the seal is
/// there, and the seal is looked at before the size. Other ways to SIGBUS: huge pages that are
/// missing when they are touched, which are refused here, and strict overcommit, see
/// [`check_overcommit`]. So there is no handler for SIGBUS.
///
/// # Errors
/// The file is not sealed, smaller than the peer says, or not to be mapped.
pub(crate) fn map(file: BorrowedFd<'_>, index: u16, claimed: u64) -> Result<Region, Violation> {
    let seals = fcntl_get_seals(file).map_err(|_| Violation::NotMemory(index))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(Violation::Unsealed(index));
    }
    // Of those that are there already F_SEAL_WRITE and F_SEAL_FUTURE_WRITE forbid the mapping below. From
    // here on none can be added that forbids to give the memory back. Where this is refused it was so.
    let _ = fcntl_add_seals(file, SealFlags::SEAL);
    let unmappable = |errno| Violation::Unmappable { index, errno };
    let file_system = fstatfs(file).map_err(unmappable)?;
    if u64::try_from(file_system.f_type) == Ok(HUGETLBFS_MAGIC) {
        return Err(Violation::HugePages(index));
    }
    let stat = fstat(file).map_err(unmappable)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Violation::NotMemory(index));
    }
    let actual = u64::try_from(stat.st_size).unwrap_or_default();
    if claimed > actual {
        return Err(Violation::RegionBeyondFile {
            index,
            claimed,
            actual,
        });
    }
    Region::map(file, claimed).map_err(unmappable)
}

/// Gives back the pages of a region, in whatever process they are mapped.
///
/// A page of a memfd is charged to the one who touched it first for as long as the file is there, and the
/// peer may keep it open. So unmapping is not enough: a hole is made of what was ours to use.
///
/// # Errors
/// The kernel's; not for a file that [`map`] has accepted.
pub(crate) fn give_back(file: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match fallocate(file, hole, 0, size) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Checks that touching shared memory cannot kill by SIGBUS.
///
/// The kernel has a page for each touch, or the OOM killer ends a process.
///
/// # Errors
/// `vm.overcommit_memory` is 2.
pub(crate) fn check_overcommit() -> Result<(), Error> {
    // Where it cannot be read, there is no /proc, and no descriptor will be recognised either.
    let mode = std::fs::read_to_string(OVERCOMMIT).unwrap_or_default();
    if mode.trim() == "2" {
        return Err(Error::StrictOvercommit);
    }
    Ok(())
}

/// A sealed file of ours and its mapping.
///
/// # Errors
/// The kernel has no memory or descriptors to give.
pub(crate) fn create(size: u32) -> Result<(OwnedFd, Region), Error> {
    let at = |operation: &'static str| {
        move |errno: Errno| Error::Memory {
            operation,
            source: io::Error::from(errno),
        }
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("memif", flags).map_err(at("memfd_create"))?;
    ftruncate(&file, size.into()).map_err(at("ftruncate of the memfd"))?;
    // The server may seal it no further: it could deny us our own memory.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(at("sealing the memfd"))?;
    let region = Region::map(std::os::fd::AsFd::as_fd(&file), size.into());
    let region = region.map_err(at("mapping the memfd"))?;
    Ok((file, region))
}
