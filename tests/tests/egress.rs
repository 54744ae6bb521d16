//! Test networks with egress: pods reach the world with an address of their node.
//!
//! They are not reached from there.

mod egress {
    mod scene;

    mod errors;
    mod isolated;
    mod mapped;
    mod ports;
    mod reach;
    mod refused;
    mod routes;
    mod survival;
    mod uplink;
}
