//! Ports of type AF_XDP: what programs of a pod that may nothing get through them, and what they do not.
//!
//! A program of a pod is a thread in its namespace that has given up every privilege.

#[cfg(test)]
mod afxdp {
    mod scene;

    mod control;
    mod dpdk;
    mod hostile;
    mod rate;
    mod survival;
    mod traffic;
}
