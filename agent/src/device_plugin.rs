//! Serve the kubelet as a device plugin.
//!
//! `plugin` answers the kubelet about the devices of a resource; [`kubelet`] keeps the kubelet told of
//! all resources, whatever becomes of the kubelet or of networks. The containers of a pod get the
//! directories in which their sockets are.

pub mod kubelet;
mod plugin;

use tokio::sync::watch;
use world::resource;

use self::kubelet::PluginPlace;
use crate::node::Node;

/// Tell the kubelet of the node's devices, until its directory cannot be watched.
///
/// # Errors
/// When the kernel does not let us watch its directory.
pub async fn serve(node: &Node) -> Result<(), notify::Error> {
    let Some(plugins) = node.devices.plugins() else {
        return std::future::pending().await;
    };
    let place = PluginPlace {
        plugins: plugins.to_owned(),
        directories: node.devices.directories().clone(),
        number: node.devices.number(),
    };
    let (wanted, wanting) = watch::channel(None);
    let tell = async {
        let (mut worlds, mut ready) = (node.world.changes(), node.readiness());
        loop {
            let now = resource::offers(&node.world.get(), node.is_ready());
            wanted.send_if_modified(|known| {
                let differs = *known != now;
                *known = now;
                differs
            });
            // Both senders live as long as the node.
            tokio::select! {
                _ = worlds.changed() => {}
                _ = ready.changed() => {}
            }
        }
    };
    tokio::select! {
        end = kubelet::follow(place, wanting) => end,
        () = tell => Ok(()),
    }
}
