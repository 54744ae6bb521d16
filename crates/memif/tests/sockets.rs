//! Listener and clients over real sockets, with real memory and eventfds: no root needed.

#[cfg(test)]
mod sockets {
    mod scene;

    mod attacks;
    mod connected;
    mod handover;
    mod reconnect;
}
