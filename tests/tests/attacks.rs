//! Repeat the attacks that once broke a promise of SECURITY.md.
//!
//! There is one file for each number of the section "Attacks" of docs/conformance.md. Each test fails
//! without the defence against its attack.

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
