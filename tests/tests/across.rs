//! Test networks across nodes: scratch nodes on one underlay, an agent on each.
//!
//! The agents tell each other by files.

mod across {
    mod asked;
    mod early;
    mod errors;
    mod explain;
    mod forged;
    mod moves;
    mod native;
    mod plugin;
    mod reach;
    mod refused;
    mod scene;
    mod segment;
    mod steer;
    mod straight;
    mod survival;
    mod trunk;
    mod uplinks;
    mod vlan;
}
