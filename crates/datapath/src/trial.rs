//! Running the programs on a frame without an interface (`BPF_PROG_TEST_RUN`).

use std::time::Duration;

use aya::programs::{TestRun as _, TestRunOptions};

use crate::error::DatapathError;
use crate::open::{Datapath, FROM_POD};

/// Longest frame that comes back, bytes.
const ROOM: usize = 65_536;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// The frame, at least 14 bytes. It arrives by the loopback interface of the caller's network
    /// namespace, whose ifindex is 1.
    pub frame: &'a [u8],
    /// How often, for timing.
    pub repeat: u32,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialResult {
    /// `TC_ACT_*` of `linux/pkt_cls.h`.
    pub verdict: u32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// Mean time of one run.
    pub duration: Duration,
}

impl Datapath {
    /// Runs what a pod's frame would meet behind the dispatcher.
    ///
    /// # Errors
    /// When the kernel refuses, as it does for frames shorter than an Ethernet header.
    pub fn try_frame(&self, trial: &Trial<'_>) -> Result<TrialResult, DatapathError> {
        let mut room = vec![0; ROOM];
        let mut options = TestRunOptions::new();
        options.data_in = Some(trial.frame);
        options.data_out = Some(&mut room);
        options.repeat = trial.repeat;
        let result = self
            .program(FROM_POD)?
            .test_run(options)
            .map_err(DatapathError::program("run", FROM_POD))?;
        let length = usize::try_from(result.data_size_out).unwrap_or(0).min(ROOM);
        room.truncate(length);
        Ok(TrialResult {
            verdict: result.return_value,
            frame: room,
            duration: result.duration,
        })
    }
}
