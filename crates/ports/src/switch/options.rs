//! Options about the switch that serves ports of type Memif.

use std::path::PathBuf;

use clap::Args;

use uswitch::SwitchUser;

/// Options of the process that serves memif ports.
#[derive(Debug, Clone, Args)]
pub struct SwitchOptions {
    /// Socket of the switch that serves ports of type Memif
    ///
    /// switch/switch.sock in the directory of --socket when not given. The agent makes the directory for the
    /// user of the switch.
    #[arg(long, value_name = "FILE", env = "PODNET_SWITCH_SOCKET")]
    pub switch_socket: Option<PathBuf>,
    /// Start the switch when none answers; false where another program does
    #[arg(
        long,
        env = "PODNET_START_SWITCH",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub start_switch: bool,
    /// User and group that the switch has
    #[arg(
        long,
        value_name = "UID:GID",
        env = "PODNET_SWITCH_USER",
        default_value_t
    )]
    pub switch_user: SwitchUser,
}
