//! Test podnet as its users meet it, in a real cluster of two nodes.
//!
//! It is applied to the cluster, and pods list networks. `cargo xtask cluster test` runs this next to
//! the control plane; no other command does.
//!
//! Every test has a namespace and networks of its own, so they run at the same time, also while one
//! of them kills an agent. `chaos`, which kills many, and `uninstall` run alone, after all others.
//! `hostile` takes ten minutes and runs when it is named.

mod e2e {
    mod commands;
    mod corner;
    mod dump;
    mod objects;

    mod across;
    mod chaos;
    mod claims;
    mod delegated;
    mod devices;
    mod downward;
    mod examples;
    mod gate;
    mod hostile;
    mod lists;
    mod native;
    mod node_access;
    mod protection;
    mod reach;
    mod removal;
    mod restart;
    mod rollout;
    mod services;
    mod statuses;
    mod uninstall;
}
