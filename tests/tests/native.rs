//! The network that the node routes for: pods, the node and the world reach each other by the node's
//! own stack, and nobody else does.

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
