//! Test Services of networks with ordinary programs as clients and endpoints.

mod services {
    mod scene;

    mod across;
    mod changes;
    mod local;
    mod policies;
    mod restarts;
    mod sockets;
}
