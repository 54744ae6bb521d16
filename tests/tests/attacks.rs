//! Attacks that once broke a promise of SECURITY.md, one file a number of the section "Attacks" of
//! docs/conformance.md. Each fails without what was built against it.

mod attacks {
    mod agent_socket;
    mod checksums;
    mod compromised_node;
    mod connections;
    mod descriptors;
    mod disk;
    mod forged_by_programs;
    mod lengths;
    mod link_control;
    mod lists;
    mod records;
    mod storm;
    mod switch;
    mod tables;
    mod tunnels;
    mod underlay;
    mod way_out;
}
