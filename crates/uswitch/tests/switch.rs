//! Run a switch in threads of this process, with clients of memif.
//!
//! Sockets stand in for devices: like a device such a socket gives and takes a frame at a time.

#[cfg(test)]
mod switch {
    mod by_hand;
    mod scene;

    mod budget;
    mod control;
    mod hostile;
    mod idle;
    mod replaced;
    mod rings;
    mod traffic;
}
