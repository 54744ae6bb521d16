//! Test listener and clients over real sockets, memory and eventfds, without root.

#[cfg(test)]
mod sockets {
    mod scene;

    mod attacks;
    mod connected;
    mod handover;
    mod reconnect;
}
