//! Test the CNI specification call by call, with the real binary and a real agent.
//!
//! Identifiers (`CNI-…`, `MEAS-…`) are those of the project's list of CNI behaviours.

mod cni {
    mod capabilities;
    mod explain;
    mod ipam;
    mod parallel;
    mod result;
    mod s2_environment;
    mod s3_errors;
    mod s4_add;
    mod s4_handover;
    mod s5_batch;
    mod s5_del;
    mod s5_tombstone;
    mod s6_check;
    mod s7_gc;
    mod s7_status;
    mod s7_version;
    mod spans;
    mod views;
}
