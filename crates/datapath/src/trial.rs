//! Running the programs on a frame without an interface (`BPF_PROG_TEST_RUN`).

use std::time::Duration;

use aya::programs::{ProgramError, TestRun as _, TestRunOptions};

use crate::error::DatapathError;
use crate::open::{Datapath, FROM_POD, FROM_UPLINK, XDP_UPLINK};

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
    /// `TC_ACT_*` of `linux/pkt_cls.h`, unless it says otherwise.
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
        let program = self.program(FROM_POD)?;
        run(trial, |options| program.test_run(options))
            .map_err(DatapathError::program("run", FROM_POD))
    }

    /// Runs what a frame from the wire would meet behind the dispatcher of an uplink.
    ///
    /// # Errors
    /// As for [`Self::try_frame`].
    pub fn try_uplink(&self, trial: &Trial<'_>) -> Result<TrialResult, DatapathError> {
        let program = self.program(FROM_UPLINK)?;
        run(trial, |options| program.test_run(options))
            .map_err(DatapathError::program("run", FROM_UPLINK))
    }

    /// Runs what a frame from the wire would meet behind the XDP dispatcher; the verdict is an `XDP_*` of
    /// `linux/bpf.h`.
    ///
    /// # Errors
    /// As for [`Self::try_frame`], and for frames of almost a page.
    pub fn try_early(&self, trial: &Trial<'_>) -> Result<TrialResult, DatapathError> {
        let program = self.xdp()?;
        run(trial, |options| program.test_run(options))
            .map_err(DatapathError::program("run", XDP_UPLINK))
    }
}

fn run(
    trial: &Trial<'_>,
    test_run: impl FnOnce(TestRunOptions<'_>) -> Result<aya::programs::TestRunResult, ProgramError>,
) -> Result<TrialResult, ProgramError> {
    let mut room = vec![0; ROOM];
    let mut options = TestRunOptions::new();
    options.data_in = Some(trial.frame);
    options.data_out = Some(&mut room);
    options.repeat = trial.repeat;
    let result = test_run(options)?;
    let length = usize::try_from(result.data_size_out).unwrap_or(0).min(ROOM);
    room.truncate(length);
    Ok(TrialResult {
        verdict: result.return_value,
        frame: room,
        duration: result.duration,
    })
}
