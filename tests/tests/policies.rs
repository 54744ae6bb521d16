//! Test network policies in force at ports.
//!
//! Ordinary programs and attackers send the traffic.

mod policies {
    mod attacker;
    mod scene;
    mod streams;

    mod across;
    mod attacks;
    mod carried;
    mod churn;
    mod crashes;
    mod directions;
    mod explain;
    mod flows;
    mod fragments;
    mod groups;
    mod limits;
    mod links;
    mod live;
    mod multi;
    mod nodes;
    mod pings;
    mod restarts;
    mod routed;
    mod sockets;
    mod views;
}
