//! Test ports of type AF_XDP, from unprivileged programs of a pod.
//!
//! A program of a pod is a thread in its namespace that has given up every privilege.

#[cfg(test)]
mod afxdp {
    mod scene;

    mod capture;
    mod control;
    mod dpdk;
    mod hostile;
    mod rate;
    mod survival;
    mod traffic;
}
