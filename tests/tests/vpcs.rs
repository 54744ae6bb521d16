//! Test networks of VPCs, which are routed to each other and to nothing else.

mod vpcs {
    mod scene;

    mod across;
    mod attacks;
    mod changes;
    mod local;
    mod policies;
    mod sockets;
    mod switched;
}
