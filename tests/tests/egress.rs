//! Networks with a way out: their pods reach the world with an address of their node, and nobody
//! reaches them.

mod egress {
    mod scene;

    mod errors;
    mod isolated;
    mod reach;
    mod refused;
    mod routes;
    mod survival;
    mod uplink;
}
