//! Test network policies in force at ports, with traffic of ordinary programs and of attackers.

mod policies {
    mod scene;

    mod across;
    mod directions;
    mod explain;
    mod live;
    mod restarts;
    mod sockets;
}
