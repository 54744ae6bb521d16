//! Test the network that the node routes for.
//!
//! Pods, the node and the world reach each other by the node's own stack, and no other network does.

mod native {
    mod scene;

    mod explain;
    mod isolated;
    mod outside;
    mod rates;
    mod reach;
    mod restored;
    mod service;
}
