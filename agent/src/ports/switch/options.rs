//! Options about the switch that serves ports of type Memif.

use std::path::PathBuf;

use clap::Args;

use super::user::SwitchUser;

/// Who serves ports that are memif sockets.
#[derive(Debug, Clone, Args)]
pub struct SwitchOptions {
    /// Socket of the switch that serves ports of type Memif; switch/switch.sock beside --socket when not
    /// given, in a directory that the agent makes for the user of the switch
    #[arg(long, value_name = "FILE", env = "PODNET_SWITCH_SOCKET")]
    pub switch_socket: Option<PathBuf>,
    /// Whether the agent starts that switch when none answers; false where something else does
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
