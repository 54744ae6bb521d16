//! Test an attacker who is root in its pod, with raw sockets, against all others.
//!
//! They are the pods of its own network, those of another network with the same subnets, the node and the
//! world behind it.
//!
//! Each attack carries a marker of its own. It must be counted under its reason and network, and
//! nobody may have seen the marker; then honest traffic must still flow. Each suite begins with
//! that honest traffic, so that "seen by nobody" cannot mean "nothing works".

mod isolation {
    mod scene;

    mod address;
    mod arp;
    mod ether;
    mod honest;
    mod ipv4;
    mod ipv6;
    mod nd;
    mod routed;
    mod storm;
    mod tampering;
}
