//! The CNI plugin and its configuration on the node: put there, and kept there.
//!
//! The configuration is written when an `ADD` would succeed, and then stays, whatever becomes of the
//! agent: without it a runtime would take the next configuration it finds, and pods would come up
//! with fewer networks than they list (NPWG §6). `podnet-agent cleanup` removes it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cni_spec::{CniRequest, Command, Reply};
use notify::{RecursiveMode, Watcher as _};
use telemetry::chain;
use tokio::sync::mpsc;

use crate::cni;
use crate::node::Node;
use crate::places::CniPlaces;

/// Whether the agent puts its plugin there.
#[derive(Debug, Clone, Args)]
pub struct InstallOptions {
    /// Install the CNI plugin and its configuration, and keep them in their places
    ///
    /// The configuration comes once pods can be served.
    #[arg(long, env = "PODNET_INSTALL_CNI")]
    pub install_cni: bool,
    /// The plugin to install; `podnet` next to this executable when not given
    #[arg(long, value_name = "FILE", env = "PODNET_CNI_BINARY")]
    pub cni_binary: Option<PathBuf>,
}

pub mod conf;
pub mod place;

/// Others work in these directories too, in several steps.
const SETTLE: Duration = Duration::from_millis(50);
/// A directory that was replaced by another is not watched any more.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Time between two questions whether an `ADD` would succeed, at first.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// The same after a while.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(5);

/// The plugin cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// Verb of the failed operation.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Directories cannot be watched.
    #[error("cannot watch the directories of CNI")]
    Watch(#[from] notify::Error),
}

/// Files to install and their places.
#[derive(Debug)]
pub struct Install {
    /// The plugin's executable, to be copied.
    source: PathBuf,
    places: CniPlaces,
    conf: String,
}

impl Install {
    /// Installation of these options; none without `--install-cni`.
    ///
    /// # Errors
    /// When it is not known where the plugin to be copied is.
    pub fn new(
        options: &InstallOptions,
        places: &CniPlaces,
        socket: &Path,
    ) -> Result<Option<Self>, InstallError> {
        if !options.install_cni {
            return Ok(None);
        }
        let source = match &options.cni_binary {
            Some(path) => path.clone(),
            None => std::env::current_exe()
                .map_err(failed("find", Path::new("this executable")))?
                .with_file_name(conf::PLUGIN),
        };
        Ok(Some(Self {
            source,
            places: places.clone(),
            conf: conf::text(socket),
        }))
    }

    /// Installs plugin and configuration, and keeps both in place without end.
    ///
    /// The plugin is installed at once, the configuration as soon as an `ADD` would succeed.
    ///
    /// # Errors
    /// When the plugin cannot be installed at all. What fails later is logged and tried again.
    pub async fn keep(self, node: Arc<Node>) -> Result<(), InstallError> {
        place::binary(&self.source, &self.binary())?;
        Box::pin(self.until_served(&node)).await;
        self.put()?;
        let (changed, mut changes) = mpsc::channel(1);
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // Reading is an event too; a full channel says "changed" already.
                if event.is_ok_and(|event| !event.kind.is_access()) {
                    let _ = changed.try_send(());
                }
            })?;
        for directory in [self.places.bin_dir(), &self.places.cni_conf_dir] {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
        }
        let mut rivals = Vec::new();
        loop {
            self.put_again(&mut rivals);
            // Either way it is time to look.
            let _ = tokio::time::timeout(LOOK_AGAIN, changes.recv()).await;
            tokio::time::sleep(SETTLE).await;
            let _ = changes.try_recv();
        }
    }

    fn binary(&self) -> PathBuf {
        self.places.bin_dir().join(conf::PLUGIN)
    }

    fn conf_file(&self) -> PathBuf {
        self.places.cni_conf_dir.join(conf::FILE)
    }

    /// Writes plugin and configuration where they differ; true when one did.
    fn put(&self) -> Result<bool, InstallError> {
        let binary = place::binary(&self.source, &self.binary())?;
        let conf = place::text(&self.conf, &self.conf_file())?;
        if binary {
            tracing::info!(file = %self.binary().display(), "the CNI plugin is installed");
        }
        if conf {
            tracing::info!(file = %self.conf_file().display(), "the CNI configuration is written");
        }
        Ok(binary || conf)
    }

    /// `rivals` are the configurations that were complained about.
    fn put_again(&self, rivals: &mut Vec<String>) {
        match self.put() {
            Ok(true) => tracing::warn!(
                "podnet's CNI plugin or configuration had been changed or removed, and is written again"
            ),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(error = %chain(&error), "the CNI plugin or configuration cannot be written, trying again");
            }
        }
        let found = conf::before_ours(&self.places.cni_conf_dir);
        for file in found.iter().filter(|file| !rivals.contains(file)) {
            // Runtimes take the first one.
            tracing::warn!(
                file,
                "this CNI configuration comes before podnet's: pods get no networks of podnet while it is there"
            );
        }
        *rivals = found;
    }

    /// Waits until a new configuration can be used.
    ///
    /// An existing configuration stays where it is meanwhile.
    async fn until_served(&self, node: &Arc<Node>) {
        node.until_recovered().await;
        let Ok(config) = conf::plugin(&self.conf) else {
            return;
        };
        let request = CniRequest {
            command: Command::Status,
            container_id: String::new(),
            netns: String::new(),
            ifname: String::new(),
            args: String::new(),
            path: self.places.bin_dir().display().to_string(),
            trace: cni_spec::TraceContext::default(),
            config,
        };
        let (mut told, mut pause) = (String::new(), ASK_AGAIN);
        loop {
            match cni::serve(node, &request, None).await.reply {
                Reply::Ok(_) => return,
                Reply::Error(error) if error.msg != told => {
                    tracing::info!(
                        reason = error.msg,
                        "the CNI configuration is not written yet: an ADD would fail"
                    );
                    told = error.msg;
                }
                Reply::Error(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = ASK_AGAIN_MAX.min(pause * 2);
        }
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::File {
        operation,
        path,
        source,
    }
}
