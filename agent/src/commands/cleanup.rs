//! `cleanup`: removes everything podnet has put on the node.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use datapath::{PinDir, bpffs};
use host::{ALIAS_PREFIX, Grace, HOST_PREFIX, NEAR_PREFIX};
use netdev::{Connection, LinkFilter};
use node_stack::{egress, routing};
use ports::directories::{self, Directories};
use ports::{afxdp, switch};
use reach::{overlay, uplinks};
use tokio::signal::unix::{SignalKind, signal};

use super::dialogue::{Failure, print};
use crate::cli::CleanupOptions;
use crate::install::conf;
use crate::places::{CniPlaces, Places};
use crate::{lease, node_access, tombstone};

/// The name of the directory that podnet has for itself below `/run`.
const OWN_DIRECTORY: &str = "podnet";

/// Removes links, pins, records and sockets; with `--dry-run` says which.
///
/// # Errors
/// When an agent runs, or something cannot be removed.
pub fn cleanup(options: &CleanupOptions) -> Result<(), Failure> {
    let places = &options.places;
    if UnixStream::connect(&places.socket).is_ok() {
        return Err(format!(
            "an agent answers on {}: stop it first, or it makes everything again",
            places.socket.display()
        )
        .into());
    }
    let verb = if options.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let mut count = 0;
    let mut say = |what: String| {
        count += 1;
        print(&format!("{verb} {what}"))
    };

    if let Some(what) = Grace::of(&places.socket).clean(options.dry_run)? {
        say(what)?;
    }
    if let Some(what) = switch::stop(&places.socket, options.dry_run)? {
        say(what)?;
    }
    let mut netlink = Connection::open()?;
    // The far end of a shaper goes with the near one.
    let ours = [
        ("veth", HOST_PREFIX),
        ("veth", NEAR_PREFIX),
        ("tun", HOST_PREFIX),
        ("vxlan", overlay::DEVICE),
    ];
    for (kind, prefix) in ours {
        let filter = LinkFilter {
            kind: Some(kind.to_owned()),
            name_prefix: Some(prefix.to_owned()),
            alias_prefix: Some(ALIAS_PREFIX.to_owned()),
        };
        for link in netlink.list(&filter)? {
            if !options.dry_run {
                netlink.delete(link.ifindex)?;
            }
            say(format!("link {}", link.name))?;
        }
    }
    // What a crash left of making it, which has no alias yet.
    let unfinished = netdev::unfinished(overlay::DEVICE);
    if netlink.by_name(&unfinished)?.is_some() {
        if !options.dry_run {
            netlink.delete_by_name(&unfinished)?;
        }
        say(format!("link {unfinished}"))?;
    }
    // After the device: nothing takes a tunnel in any more.
    if overlay::remove(options.dry_run) {
        say(format!("nf_tables table inet {}", overlay::TABLE))?;
    }
    let known = bpffs::find(&places.bpffs).ok().map(PinDir::new);
    let known = known.map(|pins| pins.uplinks()).transpose()?;
    let known = known.unwrap_or_default();
    for what in uplinks::remove(&mut netlink, &known, options.dry_run)? {
        say(what)?;
    }
    let gateways = egress::directory(&places.socket);
    for what in egress::clean(&mut netlink, &gateways, options.dry_run)? {
        say(what)?;
    }
    for what in routing::remove(&mut netlink, options.dry_run)? {
        say(what)?;
    }
    if let Some(what) = node_access::remove(&mut netlink, options.dry_run)? {
        say(what)?;
    }
    // Where there is no BPF file system there are no pins either.
    if let Ok(base) = bpffs::find(&places.bpffs) {
        let pins = PinDir::new(base);
        for path in pins.contents()? {
            let path = path.strip_prefix(pins.base()).unwrap_or(&path);
            say(format!("pin {}", places.bpffs.join(path).display()))?;
        }
        if !options.dry_run {
            pins.remove()?;
        }
    }
    if !options.dry_run {
        // What something is mounted on cannot be removed.
        directories::detach_all(&Directories::beside(&places.socket))?;
    }
    for path in cni_files(places, &options.cni)
        .into_iter()
        .chain(own_files(places))
    {
        if !options.dry_run {
            remove(&path)?;
        }
        say(path.display().to_string())?;
    }
    let own = own_directory(places);
    if let Some(own) = own.filter(|_| !options.dry_run) {
        match fs::remove_dir(own) {
            Ok(()) => say(own.display().to_string())?,
            // Mounted here from elsewhere, it belongs to who has done that.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(error.into()),
        }
    }
    if count == 0 {
        print("nothing of podnet is on this node")?;
    }
    if options.stay {
        stay("the node is clean; waiting for a signal to end")
    } else {
        Ok(())
    }
}

/// The directory of the socket, when it is podnet's and nothing is in it.
fn own_directory(places: &Places) -> Option<&Path> {
    let directory = places.socket.parent()?;
    let is_ours = directory.file_name()? == OWN_DIRECTORY;
    let is_empty = fs::read_dir(directory).ok()?.next().is_none();
    (is_ours && is_empty).then_some(directory)
}

/// Waits for a signal to end.
pub(super) fn stay(why: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        print(why)?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

/// Files of the plugin and its configuration, unless another agent has them.
///
/// The configuration goes first: the runtime calls no plugin from then on. Another agent is one with
/// another socket.
fn cni_files(places: &Places, cni: &CniPlaces) -> Vec<PathBuf> {
    let conf = cni.cni_conf_dir.join(conf::FILE);
    let ours = fs::read_to_string(&conf).is_ok_and(|text| conf::leads_to(&text, &places.socket));
    let mut files = vec![conf, cni.bin_dir().join(conf::PLUGIN)];
    files.retain(|path| ours && fs::symlink_metadata(path).is_ok());
    files
}

/// Own files in the places that the user chose, each before its directory.
///
/// A state directory with any other file stays: other programs may share it.
fn own_files(places: &Places) -> Vec<PathBuf> {
    let state = &places.state_dir;
    let mut files = vec![
        places.boot_dir(),
        state.join(book::DATABASE),
        state.join(book::BOOT_FILE),
        tombstone::directory(&places.socket),
        switch::directory(&places.socket),
        switch::own_directory(&places.socket),
        afxdp::directory(&places.socket),
        Directories::beside(&places.socket),
        places.socket.clone(),
    ];
    files.extend(lease::files(&places.socket));
    files.retain(|path| fs::symlink_metadata(path).is_ok());
    let only_ours = fs::read_dir(state).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| files.contains(&entry.path())))
    });
    if only_ours {
        files.push(state.clone());
    }
    files
}

fn remove(path: &Path) -> io::Result<()> {
    let is_dir = fs::symlink_metadata(path)?.is_dir();
    if is_dir {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(places: &Places) -> Vec<String> {
        let state = places.state_dir.parent().unwrap();
        let relative = |path: PathBuf| path.strip_prefix(state).unwrap().display().to_string();
        own_files(places).into_iter().map(relative).collect()
    }

    /// PAIN-BOOT-3: cleanup removes plugin and configuration of its own agent only.
    ///
    /// An uninstalled podnet must not keep pods from ending, and one agent's end must not be another's.
    #[test]
    fn plugin_and_configuration_go_with_the_agent_they_lead_to() {
        let root = tempfile::tempdir().unwrap();
        let places = |socket: &str| Places {
            socket: root.path().join(socket),
            state_dir: root.path().join("state"),
            bpffs: root.path().join("bpf"),
        };
        let cni = CniPlaces {
            cni_bin_dir: Some(root.path().join("bin")),
            cni_conf_dir: root.path().join("net.d"),
        };
        fs::create_dir_all(cni.bin_dir()).unwrap();
        fs::create_dir_all(&cni.cni_conf_dir).unwrap();
        fs::write(cni.bin_dir().join("podnet"), "").unwrap();
        let (ours, other) = (places("agent.sock"), places("other.sock"));
        assert_eq!(
            cni_files(&ours, &cni),
            Vec::<PathBuf>::new(),
            "no configuration"
        );
        let conf = cni.cni_conf_dir.join("05-podnet.conflist");
        fs::write(&conf, conf::text(&ours.socket)).unwrap();
        assert_eq!(cni_files(&other, &cni), Vec::<PathBuf>::new());
        let both = [conf, cni.bin_dir().join("podnet")];
        assert_eq!(cni_files(&ours, &cni), both);
        proof::of!("PAIN-BOOT-3");
    }

    /// PAIN-BOOT-3: the socket's directory goes when podnet made it and it is empty.
    #[test]
    fn the_directory_of_the_socket_goes_when_it_is_empty_and_ours() {
        let root = tempfile::tempdir().unwrap();
        let places = |socket: &str| Places {
            socket: root.path().join(socket),
            state_dir: root.path().join("state"),
            bpffs: root.path().join("bpf"),
        };
        let ours = places("podnet/agent.sock");
        assert_eq!(own_directory(&ours), None, "it is not there");
        fs::create_dir_all(root.path().join("podnet")).unwrap();
        fs::create_dir_all(root.path().join("shared")).unwrap();
        assert_eq!(own_directory(&ours), ours.socket.parent());
        assert_eq!(own_directory(&places("shared/agent.sock")), None);
        fs::write(root.path().join("podnet/letter"), "").unwrap();
        assert_eq!(own_directory(&ours), None, "something else is in it");
        proof::of!("PAIN-BOOT-3");
    }

    /// `--state-dir` and the directory of `--socket` may be shared with others.
    #[test]
    fn only_our_own_files_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let places = Places {
            socket: root.path().join("run/agent.sock"),
            state_dir: root.path().join("state"),
            bpffs: root.path().join("bpf"),
        };
        assert_eq!(names(&places), [""; 0], "nothing is there");
        for file in [
            "state/attachments.redb",
            "state/boot-id",
            "state/letter",
            "run/pending-del/a-b",
            "run/lease",
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let ours = [
            "state/attachments.redb",
            "state/boot-id",
            "run/pending-del",
            "run/lease",
        ];
        assert_eq!(names(&places), ours);
        fs::remove_file(root.path().join("state/letter")).unwrap();
        let all = own_files(&places);
        assert_eq!(all.last(), Some(&places.state_dir), "nothing else is in it");
        for path in all {
            remove(&path).unwrap();
        }
        assert!(!places.state_dir.exists() && root.path().join("run").exists());
    }
}
