//! Name the files and directories of a node that the agent uses.

use std::path::{Path, PathBuf};

use clap::Args;

/// Where the agent keeps things.
#[derive(Debug, Clone, Args)]
pub struct Places {
    /// Socket the CNI plugin and the commands talk to
    #[arg(long, env = "PODNET_SOCKET", default_value = "/run/podnet/agent.sock")]
    pub socket: PathBuf,
    /// Directory of the records that survive a reboot
    ///
    /// Those that a reboot ends are in a directory beside the socket, on a file system in memory.
    #[arg(long, env = "PODNET_STATE_DIR", default_value = "/var/lib/podnet")]
    pub state_dir: PathBuf,
    /// Directory of the pinned programs and maps, on a BPF file system
    #[arg(long, env = "PODNET_BPFFS", default_value = "/sys/fs/bpf/podnet")]
    pub bpffs: PathBuf,
}

impl Places {
    /// Directory of the records that a reboot ends.
    pub fn boot_dir(&self) -> PathBuf {
        let beside = self.socket.parent().unwrap_or(Path::new("/"));
        beside.join("records")
    }
}

/// Where the runtime keeps CNI's plugins and configurations.
#[derive(Debug, Clone, Args)]
pub struct CniPlaces {
    /// Directory of the runtime's CNI plugins, /opt/cni/bin when not given
    ///
    /// When it is given, plugins of others are looked for there alone, whatever CNI_PATH a request names.
    #[arg(long, value_name = "DIR", env = "PODNET_CNI_BIN_DIR")]
    pub cni_bin_dir: Option<PathBuf>,
    /// Directory of the runtime's CNI configurations
    #[arg(long, env = "PODNET_CNI_CONF_DIR", default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
}

impl CniPlaces {
    /// Directory of the runtime's CNI plugins.
    pub fn bin_dir(&self) -> &Path {
        let given = self.cni_bin_dir.as_deref();
        given.unwrap_or(Path::new("/opt/cni/bin"))
    }
}
