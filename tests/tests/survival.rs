//! The datapath outlives its agent, and the agent finds its way back.

mod survival {
    mod adopt;
    mod audit;
    mod reboot;
    mod restart;
    mod traffic;
}
