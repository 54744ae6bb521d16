//! Test podnet's objects in a real API server.
//!
//! One server serves all tests of this binary: each makes a namespace of its own, or gives its
//! cluster-wide objects a name of its own.

mod kubernetes {
    mod controller;
    mod objects;
    mod scene;

    mod agent;
    mod agent_access;
    mod agent_install;
    mod agent_manifests;
    mod agent_numbers;
    mod agent_pods;
    mod agent_removal;
    mod agent_routes;
    mod agent_scene;
    mod agent_status;
    mod agent_transports;
    mod chart;
    mod crds;
    mod crds_addresses;
    mod crds_parameters;
    mod crds_slices;
    mod crds_standard;
    mod crds_vpcs;
    mod documented;
    mod ipam;
    mod ipam_attacks;
    mod ipam_blocks;
    mod ipam_claims;
    mod ipam_policy;
    mod ipam_scene;
    mod plugin;
    mod policies;
    mod policy_parameters;
    mod ports;
    mod scheduling;
    mod server;
    mod services;
    mod slices;
    mod slices_attacks;
    mod vpcs;
    mod webhook;
    mod webhook_access;
    mod webhook_certificates;
    mod webhook_copies;
    mod webhook_downward;
    mod webhook_inject;
    mod webhook_limits;
    mod webhook_policy;
    mod webhook_populate;
    mod webhook_scene;
    mod webhook_services;
}
