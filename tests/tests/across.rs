//! Networks across nodes: several scratch nodes on one underlay, each with an agent of its own, who
//! tell each other by files.

mod across {
    mod asked;
    mod early;
    mod errors;
    mod explain;
    mod forged;
    mod moves;
    mod native;
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
