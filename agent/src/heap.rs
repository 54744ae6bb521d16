//! Keeps memory that was freed few places to stay in, and gives it back.
#![expect(
    unsafe_code,
    reason = "the C library's allocator has no other interface"
)]

/// Parts of the heap that threads allocate from (`M_ARENA_MAX`, mallopt(3)).
///
/// The C library gives each thread a part of its own, up to eight a processor, and what is freed in one is of no
/// use to another: among 4,000 ports a third of the agent's memory was free in that way.
const ARENAS: i32 = 2;

/// Limits the parts of the heap, for threads that are made from now on.
///
/// A C library without parts keeps what it has.
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes no pointers, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = ARENAS;
}

/// Gives the kernel what is free in the heap, whole pages of it (malloc_trim(3)).
///
/// The C library does so only at the end of a part. After 4,000 ports have got their links, a quarter of the agent's
/// memory is free in between. Takes milliseconds, in which no thread allocates.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes no pointers, and locks what other threads use.
    unsafe {
        libc::malloc_trim(0);
    }
}
