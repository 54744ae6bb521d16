//! Test Services of networks with ordinary programs as clients and endpoints.

mod services {
    mod scene;

    mod across;
    mod by_node;
    mod changes;
    mod errors;
    mod local;
    mod node_access;
    mod policies;
    mod restarts;
    mod rolling;
    mod sockets;
}
