//! Test memif with DPDK's testpmd as client and as server of our library.
//!
//! Frames are sent through it and compared byte by byte when they come back.
//!
//! Each test has a network namespace of its own, for abstract sockets are scoped by it.

#[cfg(test)]
mod memif {
    mod testpmd;

    mod as_client;
    mod as_server;
    mod by_switch;
    mod foreign_file;
    mod libmemif;
}
