//! The one place where an ABI type becomes bytes for the kernel.
#![expect(
    unsafe_code,
    reason = "aya asks for an unsafe marker on what it copies to and from maps"
)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A type of `agent-common` as aya wants it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Abi<T>(pub(crate) T);

// SAFETY: `Pod` asks that every bit pattern be a value and that there be no padding. The compiler
// has checked both for `T`: `FromBytes` is the one, `IntoBytes` the other.
unsafe impl<T> aya::Pod for Abi<T> where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static
{
}
