//! Parts of ports in a kernel of the test's own.
//!
//! It fails or ends the agent at a chosen call. After each call it looks whether all that is up is guarded.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use book::bandwidth::Limits;
use book::record::{Attachment, HostEnd};
use datapath::{DatapathError, HookKind, PinDir};
use host::{Ear, HOST_PREFIX, HostError, NEAR_PREFIX};
use netdev::{Discipline, LinkChange, Neighbour, Netns, Shape, TapSpec, VethPair, VethSpec};
use telemetry::fate::{Calls, Fated, Refused, call};

use crate::PortError;
use crate::afxdp::FitPort;
use crate::directories::Directories;
use crate::kernel::Kernel;
use crate::life::Parts;
use crate::survey::{Seen, Survey};

mod checks;

/// A link of the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FakeLink {
    pub(super) name: String,
    /// The other end, where that is a link of the node, too.
    pub(super) peer: Option<u32>,
    pub(super) up: bool,
    /// The dispatcher is attached.
    pub(super) guarded: bool,
    /// So is that of the way out.
    pub(super) judged: bool,
    pub(super) shape: Option<Shape>,
    /// It finishes packets.
    finishes: bool,
    /// The program of AF_XDP ports is at the pod's end.
    fitted: bool,
    silent: bool,
    listens: Option<Ear>,
    /// The node's stack knows the pod behind it.
    pub(super) reached: bool,
    /// Whether the pod's end is up; none without one.
    pub(super) pod_end: Option<bool>,
    /// Its queue was waited for.
    pub(super) started: bool,
}

/// Things of ports that outlive an agent, and some of the agent's own.
#[derive(Debug, Default)]
pub(super) struct Things {
    pub(super) links: BTreeMap<u32, FakeLink>,
    /// Indexes of links with a pin.
    pub(super) pins: BTreeSet<u32>,
    /// Host ends of AF_XDP ports with pins.
    pub(super) xsk: BTreeSet<String>,
    /// Directories with the map of an AF_XDP port.
    pub(super) shared: BTreeSet<PathBuf>,
    /// Control sockets by host end, and whether they are in the directory of a device.
    pub(super) controls: BTreeMap<String, bool>,
    /// Host ends of ports that are described to their pods.
    pub(super) told: BTreeSet<String>,
    /// Ports of the switch, by key.
    pub(super) switch: BTreeSet<String>,
    /// Host ends that the tables know.
    pub(super) live: BTreeSet<u32>,
    /// Records, by host end.
    pub(super) book: BTreeMap<String, Attachment>,
    /// Attachments that were ever asked for, by host end.
    pub(super) asked: BTreeMap<String, Attachment>,
    /// Host ends that wait for their TCX links: the agent's own.
    pub(super) waiting: BTreeSet<u32>,
    /// Host ends whose program another program has taken away.
    pub(super) robbed: BTreeSet<u32>,
    /// Limits of which the switch was told last.
    pub(super) switched_limits: Option<Limits>,
    /// Links are watched.
    watched: bool,
    pub(super) calls: Calls,
    last_index: u32,
}

impl Fated for Things {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }
}

impl Things {
    fn add(&mut self, link: FakeLink) -> u32 {
        let taken = self.links.values().any(|it| it.name == link.name);
        assert!(!taken, "{} is taken", link.name);
        self.last_index += 1;
        self.links.insert(self.last_index, link);
        self.last_index
    }

    fn remove(&mut self, ifindex: u32) -> bool {
        let removed = self.links.remove(&ifindex);
        if let Some(peer) = removed.as_ref().and_then(|link| link.peer) {
            self.links.remove(&peer);
        }
        removed.is_some()
    }

    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        let mut links = self.links.iter();
        links.find(|it| it.1.name == name).map(|(index, _)| *index)
    }

    fn link(&mut self, ifindex: u32) -> &mut FakeLink {
        self.links.get_mut(&ifindex).expect("a link of this index")
    }
}

/// The kernel, and a connection to it.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeKernel(Arc<Mutex<Things>>);

impl FakeKernel {
    pub(super) fn things(&self) -> MutexGuard<'_, Things> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn call<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut Things) -> T,
    ) -> Result<T, Refused> {
        call(&self.0, name, |things| {
            let done = effect(things);
            things.assert_guarded();
            done
        })
    }

    fn net<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut Things) -> T,
    ) -> Result<T, netdev::Error> {
        let what = "the test refuses";
        self.call(name, effect)
            .map_err(|Refused| netdev::Error::Malformed { what })
    }

    fn port<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut Things) -> T,
    ) -> Result<T, PortError> {
        Ok(self.net(name, effect)?)
    }
}

impl Kernel for FakeKernel {
    type Hook = ();

    fn delete_by_name(&mut self, name: &str) -> Result<bool, netdev::Error> {
        self.net("delete a link by name", |things| {
            let found = things.index_of(name);
            found.is_some_and(|ifindex| things.remove(ifindex))
        })
    }

    fn delete(&mut self, ifindex: u32) -> Result<(), netdev::Error> {
        self.net("delete a link", |things| {
            things.remove(ifindex);
        })
    }

    fn create_veth(&mut self, spec: &VethSpec) -> Result<VethPair, netdev::Error> {
        let in_pod = spec.peer_netns.is_some();
        self.net("create a pair", |things| {
            assert!(spec.alias.is_some(), "a stray without an alias stays");
            let host = things.add(FakeLink {
                name: spec.host_name.clone(),
                pod_end: in_pod.then_some(false),
                ..FakeLink::default()
            });
            if in_pod {
                things.last_index += 1;
            } else {
                let far = things.add(FakeLink {
                    name: spec.peer_name.clone(),
                    peer: Some(host),
                    ..FakeLink::default()
                });
                things.link(host).peer = Some(far);
            }
            VethPair {
                host_ifindex: host,
                peer_ifindex: things.last_index,
            }
        })
    }

    fn create_tap(&mut self, spec: &TapSpec) -> Result<u32, netdev::Error> {
        let name = spec.name.clone();
        self.net("create a device", |things| {
            things.add(FakeLink {
                name,
                ..FakeLink::default()
            })
        })
    }

    fn attach_dispatcher(&mut self, (): &(), ifindex: u32) -> Result<(), HostError> {
        Ok(self.net("attach the dispatcher", |things| {
            things.link(ifindex).guarded = true;
        })?)
    }

    fn attach_way_out(&mut self, (): &(), ifindex: u32) -> Result<(), HostError> {
        let attach = |things: &mut Things| things.link(ifindex).judged = true;
        Ok(self.net("attach the dispatcher on the way out", attach)?)
    }

    fn finish_packets(&mut self, ifindex: u32) -> Result<(), PortError> {
        self.port("finish packets", |things| {
            things.link(ifindex).finishes = true;
        })
    }

    fn forget_xsk(&mut self, (): &(), host: &str) -> Result<(), PortError> {
        self.port("forget old pins", |things| {
            things.xsk.remove(host);
        })
    }

    fn attach_xsk(&mut self, (): &(), port: &FitPort, _: u32) -> Result<(), PortError> {
        self.port("attach the XDP program", |things| {
            things.xsk.insert(port.host().to_owned());
            let ifindex = things.index_of(port.host()).expect("its link");
            things.link(ifindex).fitted = true;
        })
    }

    fn share_xsk(&mut self, (): &(), port: &FitPort) -> Result<(), PortError> {
        self.port("share the map", |things| {
            things.shared.extend(port.shared().map(ToOwned::to_owned));
        })
    }

    fn shape(&mut self, ifindex: u32, shape: &Shape, _: Discipline) -> Result<(), netdev::Error> {
        self.net("limit a rate", |things| {
            things.link(ifindex).shape = Some(*shape);
        })
    }

    fn listen(&mut self, link: (&str, u32), ear: Ear, _: bool) -> Result<(), netdev::Error> {
        self.net("have the stack listen", |things| {
            things.link(link.1).listens = Some(ear);
        })
    }

    fn silence(&mut self, link: &str) -> Result<(), netdev::Error> {
        self.net("silence a link", |things| {
            let ifindex = things.index_of(link).expect("a link of this name");
            things.link(ifindex).silent = true;
        })
    }

    fn reconfigure(&mut self, ifindex: u32, change: &LinkChange) -> Result<(), netdev::Error> {
        let up = change.up;
        self.net("change a link", |things| {
            let link = things.link(ifindex);
            link.up = up.unwrap_or(link.up);
        })
    }

    fn set_up(&mut self, ifindex: u32) -> Result<(), netdev::Error> {
        self.net("set a link up", |things| things.link(ifindex).up = true)
    }

    fn reach(&mut self, ifindex: u32, _: &[Neighbour]) -> Result<(), netdev::Error> {
        self.net("tell where pods are", |things| {
            things.link(ifindex).reached = true;
        })
    }
}

/// The parts of one agent.
#[derive(Debug)]
pub(super) struct FakeParts {
    pub(super) kernel: FakeKernel,
    pub(super) devices: Directories,
}

impl FakeParts {
    /// Parts of the next agent, which knows the kernel and the book.
    pub(super) fn new(kernel: &FakeKernel) -> Self {
        kernel.things().waiting.clear();
        let pins = PinDir::new("/none/pins".into());
        Self {
            kernel: kernel.clone(),
            devices: Directories::new("/none/agent.sock".as_ref(), &pins),
        }
    }

    fn forget_control(things: &mut Things, record: &Attachment) {
        things.controls.remove(&record.host.name);
        things.told.remove(&record.host.name);
    }
}

impl Parts for FakeParts {
    type Kernel = FakeKernel;
    type Watch = ();

    fn hook(&self) {}

    fn devices(&self) -> &Directories {
        &self.devices
    }

    fn discipline(&self, _: &Limits) -> Result<Discipline, PortError> {
        self.kernel
            .port("choose a discipline", |_| Discipline::Fifo)
    }

    async fn with<T: Send + 'static, E: From<netdev::Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut FakeKernel) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let mut kernel = self.kernel.clone();
        match tokio::task::spawn_blocking(move || work(&mut kernel)).await {
            Ok(done) => done,
            Err(died) => resume_unwind(died.into_panic()),
        }
    }

    async fn with_pod_end<T: Send + 'static, E: From<netdev::Error> + Send + 'static>(
        &self,
        record: &Attachment,
        _: &Netns,
        here: impl FnOnce(&mut FakeKernel) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        // So that the watch is always the call before the links.
        tokio::task::yield_now().await;
        let has_pod_end = !record.is_switched();
        let name = record.host.name.clone();
        self.with(move |kernel: &mut FakeKernel| {
            let made = here(kernel)?;
            if has_pod_end {
                kernel.net("set the pod's end up", |things| {
                    let ifindex = things.index_of(&name).expect("its link");
                    assert!(things.link(ifindex).up, "the pod's end is up first");
                    let is_known =
                        things.live.contains(&ifindex) && things.book.contains_key(&name);
                    assert!(is_known, "the pod of {name} sends before it is known");
                    let record = &things.book[&name];
                    let is_served = things.controls.contains_key(&name) || !record.is_afxdp();
                    assert!(is_served, "the pod of {name} finds no control socket");
                    let is_watched = things.watched || !record.host_end_queues();
                    assert!(is_watched, "nothing tells when the queue of {name} starts");
                    things.link(ifindex).pod_end = Some(true);
                })?;
            }
            Ok(made)
        })
        .await
    }

    fn watch(&self) -> Result<(), netdev::Error> {
        self.kernel
            .net("watch links", |things| things.watched = true)
    }

    async fn started(&self, (): (), host_end: u32) -> Result<(), netdev::Error> {
        self.kernel.net("wait for the queue", |things| {
            let name = things.link(host_end).name.clone();
            let is_memif = things.book.get(&name).is_some_and(Attachment::is_switched);
            let served = things
                .switch
                .iter()
                .any(|key| *key == things.book[&name].key.to_string());
            assert!(
                served || !is_memif,
                "{name} has no carrier before the switch has it"
            );
            let is_told = things.told.contains(&name) || things.asked[&name].socket_path.is_none();
            assert!(is_told, "the pod of {name} is up and not told of its port");
            things.link(host_end).started = true;
            things.watched = false;
        })
    }

    async fn open_control(&self, record: &Attachment, _: &Netns) -> Result<(), PortError> {
        if !record.is_afxdp() {
            return Ok(());
        }
        self.kernel.port("open a control socket", |things| {
            let has_device = record.device.is_some();
            things.controls.insert(record.host.name.clone(), has_device);
        })
    }

    fn shut_control(&self, record: &Attachment) {
        if record.is_afxdp() {
            // What cannot be removed is logged.
            let shut = |things: &mut Things| Self::forget_control(things, record);
            let _ = self.kernel.call("shut a control socket", shut);
        }
    }

    fn unpin(&self, record: &Attachment) -> Result<(), PortError> {
        if !record.is_afxdp() {
            return Ok(());
        }
        let shared = self.devices.of_map_of(record);
        self.kernel.port("remove pins", |things| {
            things.xsk.remove(&record.host.name);
            things.shared.retain(|it| Some(it) != shared.as_ref());
        })
    }

    async fn mend_afxdp(&self, record: &Attachment) -> Result<(), PortError> {
        self.open_control(record, &Netns::current()?).await
    }

    fn remove_stray_controls(&self) -> Result<(), PortError> {
        self.kernel.port("remove stray sockets and pins", |things| {
            let book = &things.book;
            let mut shared = book.values().filter_map(|it| self.devices.of_map_of(it));
            things
                .controls
                .retain(|name, in_device| *in_device || book.contains_key(name));
            things.xsk.retain(|name| book.contains_key(name));
            things.shared.retain(|it| shared.any(|known| known == *it));
        })
    }

    fn tell_pod(&self, record: &Attachment) -> Result<(), PortError> {
        if record.socket_path.is_none() {
            return Ok(());
        }
        self.kernel.port("describe the port", |things| {
            things.told.insert(record.host.name.clone());
        })
    }

    async fn plug_in(&self, record: &Attachment, _: &Netns) -> Result<bool, PortError> {
        self.kernel.port("plug in", |things| {
            let ifindex = things.index_of(&record.host.name).expect("its device");
            assert!(things.live.contains(&ifindex), "the switch sends too soon");
            assert!(things.watched, "nothing tells when the device starts");
            things.switch.insert(record.key.to_string())
        })
    }

    async fn unplug(&self, record: &Attachment) -> Result<(), PortError> {
        self.kernel.port("unplug", |things| {
            things.switch.remove(&record.key.to_string());
            Self::forget_control(things, record);
        })
    }

    async fn tell_switch(&self, record: &Attachment) -> Result<(), PortError> {
        self.kernel.port("tell the switch", |things| {
            things.switched_limits = Some(record.limits);
        })
    }

    async fn shape(&self, record: &Attachment, limits: Limits) -> Result<Attachment, PortError> {
        self.kernel.port("shape", |_| Attachment {
            limits,
            ..record.clone()
        })
    }

    async fn close_queues(&self, _: &Attachment) {
        let _ = self.kernel.call("count drops", |_| ());
    }

    fn may_be_there(&self, name: &str) -> bool {
        self.kernel.things().index_of(name).is_some()
    }

    async fn remove_links(
        &self,
        _: &Attachment,
        names: Vec<String>,
    ) -> Result<Vec<bool>, PortError> {
        let remove = move |kernel: &mut FakeKernel| -> Result<_, netdev::Error> {
            let removed = names.iter().map(|name| kernel.delete_by_name(name));
            removed.collect()
        };
        Ok(self.with(remove).await?)
    }

    fn await_promotion(&self, host: HostEnd) {
        self.kernel.things().waiting.insert(host.ifindex);
    }

    fn forget_promotion(&self, ifindex: u32) {
        self.kernel.things().waiting.remove(&ifindex);
    }

    async fn is_attached(&self, host: &HostEnd) -> Result<bool, PortError> {
        let guarded = |things: &mut Things| things.links.get(&host.ifindex).map(|it| it.guarded);
        let found = self.kernel.port("look for the dispatcher", guarded)?;
        Ok(found.unwrap_or(false))
    }

    async fn attach_again(&self, ifindex: u32) -> Result<(), PortError> {
        self.kernel.port("attach the dispatcher again", |things| {
            things.robbed.remove(&ifindex);
            things.link(ifindex).guarded = true;
        })
    }

    async fn mend_way_out(&self, host: &HostEnd) -> bool {
        let mut things = self.kernel.things();
        let link = things.links.get_mut(&host.ifindex);
        link.is_some_and(|link| !std::mem::replace(&mut link.judged, true))
    }

    fn hook_kind(&self, ifindex: u32) -> HookKind {
        match self.kernel.things().pins.contains(&ifindex) {
            true => HookKind::Tcx,
            false => HookKind::Filter,
        }
    }

    fn forget_hook(&self, ifindex: u32) -> Result<(), PortError> {
        let forget = |things: &mut Things| {
            let is_waiting = things.waiting.contains(&ifindex);
            assert!(!is_waiting, "a promotion would make another pin");
            things.pins.remove(&ifindex)
        };
        match self.kernel.call("forget a pin", forget) {
            Ok(_) => Ok(()),
            Err(Refused) => Err(DatapathError::NoObject.into()),
        }
    }

    fn pinned(&self, _: &PinDir) -> Result<Vec<u32>, PortError> {
        self.kernel
            .port("list pins", |things| things.pins.iter().copied().collect())
    }

    async fn look(&self) -> Result<Survey, PortError> {
        self.kernel.port("look at links", |things| {
            let links = things.links.iter();
            // The far end of a shaper is none of ours by its name.
            let ours = links.filter(|(_, link)| {
                link.name.starts_with(HOST_PREFIX) || link.name.starts_with(NEAR_PREFIX)
            });
            Survey::of(ours.map(|(ifindex, link)| {
                let carrier = link.up && link.pod_end == Some(true);
                let seen = Seen {
                    ifindex: *ifindex,
                    carrier,
                    up: link.up,
                    peer: None,
                };
                (link.name.clone(), seen)
            }))
        })
    }
}
