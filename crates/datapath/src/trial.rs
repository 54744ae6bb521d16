//! Running the programs on a frame without an interface (`BPF_PROG_TEST_RUN`).

use std::time::Duration;

use agent_common::packet::ETH_HLEN;
use agent_common::vtep::{TRY_ETHERNET, TRY_FAMILY};
use aya::programs::{Program, ProgramError, TestRun as _, TestRunOptions, TestRunResult};

use crate::error::DatapathError;
use crate::open::Datapath;
use crate::programs::{FROM_POD, FROM_UPLINK, Side, TRY_ROOM, XDP_UPLINK};

/// Longest frame that comes back, bytes.
const ROOM: usize = 65_536;

/// A frame and the program to run on it.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// The frame, at least 14 bytes.
    ///
    /// It arrives by the loopback interface of the caller's network namespace, whose ifindex is 1.
    pub frame: &'a [u8],
    /// How often, for timing.
    pub repeat: u32,
}

/// The result of a trial.
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
        self.run(trial, Side::Pod, FROM_POD)
    }

    /// Runs what a frame from the wire would meet behind the dispatcher of an uplink.
    ///
    /// # Errors
    /// As for [`Self::try_frame`].
    pub fn try_uplink(&self, trial: &Trial<'_>) -> Result<TrialResult, DatapathError> {
        self.run(trial, Side::Uplink, FROM_UPLINK)
    }

    /// Runs the program behind the XDP dispatcher on a frame from the wire.
    ///
    /// The verdict is an `XDP_*` of `linux/bpf.h`.
    ///
    /// # Errors
    /// As for [`Self::try_frame`], and for frames of almost a page.
    pub fn try_early(&self, trial: &Trial<'_>) -> Result<TrialResult, DatapathError> {
        self.run(trial, Side::Early, XDP_UPLINK)
    }

    fn run(
        &self,
        trial: &Trial<'_>,
        side: Side,
        name: &'static str,
    ) -> Result<TrialResult, DatapathError> {
        let mut room = vec![0; ROOM];
        let mut options = TestRunOptions::new();
        options.data_in = Some(trial.frame);
        options.data_out = Some(&mut room);
        options.repeat = trial.repeat;
        let run = |program: &Program| test_run(program, options);
        let result = self.programs().with(side, name, "run", run)?;
        let length = usize::try_from(result.data_size_out).unwrap_or(0).min(ROOM);
        room.truncate(length);
        Ok(TrialResult {
            verdict: result.return_value,
            frame: room,
            duration: result.duration,
        })
    }
}

fn test_run(program: &Program, options: TestRunOptions<'_>) -> Result<TestRunResult, ProgramError> {
    match program {
        Program::SchedClassifier(program) => program.test_run(options),
        Program::Xdp(program) => program.test_run(options),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// How the kernel makes room for a tunnel's headers (`bpf_skb_adjust_room`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// It can be told that there is an Ethernet header inside (Linux 5.13).
    pub says_ethernet: bool,
    /// It takes headers of one family off a packet of the other (Linux 6.3).
    pub any_family: bool,
}

impl Datapath {
    /// Tries how the kernel makes room.
    ///
    /// Versions do not tell, because distributions backport.
    ///
    /// # Errors
    /// When the kernel refuses to run the program.
    pub fn try_room(&self) -> Result<Room, DatapathError> {
        // Any IPv4 packet.
        let mut frame = [0; 64];
        let (_, start) = frame.split_at_mut(ETH_HLEN - 2);
        for (to, from) in start.iter_mut().zip([0x08, 0x00, 0x45]) {
            *to = from;
        }
        let mut options = TestRunOptions::new();
        options.data_in = Some(&frame);
        let run = |program: &Program| test_run(program, options);
        let known = self
            .programs()
            .with(Side::Pod, TRY_ROOM, "run", run)?
            .return_value;
        Ok(Room {
            says_ethernet: known & TRY_ETHERNET != 0,
            any_family: known & TRY_FAMILY != 0,
        })
    }
}
