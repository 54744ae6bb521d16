//! Async access to one namespace.

use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::address::{Address, AddressState};
use crate::connection::Connection;
use crate::error::Error;
use crate::link::{Link, LinkChange, LinkFilter, VethPair, VethSpec};
use crate::monitor::LinkMonitor;
use crate::netfilter::{Netfilter, RulesetMonitor};
use crate::netns::{Netns, on_own_thread};
use crate::pod::{self, PlacedEnd, PodEnd};
use crate::route::Route;
use crate::shape::{Discipline, RootQueue, Shape};
use crate::way::{WayMonitor, has_ipsec_policies};

/// Connections kept open between calls; bursts open more and close them again.
const IDLE_MAX: usize = 4;

/// Netlink in one network namespace, for async code.
///
/// It is cheap to clone; clones share sockets.
///
/// Each call takes a socket of its own, so calls do not wait for one another (they still meet at
/// the kernel's RTNL lock). A call that was started is carried out even if its future is dropped.
#[derive(Clone, Debug)]
pub struct Netlink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    netns: Netns,
    idle: Mutex<Vec<Connection>>,
}

impl Shared {
    /// Opens something in the namespace, if that is another one on a thread of its own.
    fn open<T: Send>(&self, open: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        if self.netns.same_as_current()? {
            return open();
        }
        self.netns.run_in(open)?
    }

    fn with<T, E: From<Error>>(
        &self,
        f: impl FnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut connection = taken.map_or_else(|| self.open(Connection::open), Ok)?;
        let outcome = f(&mut connection);
        if !connection.is_broken() {
            let mut idle = idle();
            if idle.len() < IDLE_MAX {
                idle.push(connection);
            }
        }
        outcome
    }
}

impl Netlink {
    /// The calling thread's namespace.
    ///
    /// # Errors
    /// [`Error::OpenSocket`], [`Error::OpenNetns`].
    pub fn current() -> Result<Self, Error> {
        Self::in_netns(&Netns::current()?)
    }

    /// Another namespace. Entered once per socket, by a thread that ends at once.
    ///
    /// # Errors
    /// [`Error::OpenSocket`], [`Error::EnterNetns`].
    pub fn in_netns(netns: &Netns) -> Result<Self, Error> {
        let shared = Shared {
            netns: netns.clone(),
            idle: Mutex::default(),
        };
        // Opened now so that a lack of rights shows here and not at the first call.
        shared.with(|_| Ok::<(), Error>(()))?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// [`Netns::from_fd`], on a connection that is there. Blocks for some microseconds.
    ///
    /// # Errors
    /// As there.
    pub fn adopt(&self, fd: OwnedFd) -> Result<Netns, Error> {
        self.shared
            .with(|connection| Netns::checked(fd, connection))
    }

    /// The namespace.
    pub fn netns(&self) -> &Netns {
        &self.shared.netns
    }

    /// Runs several calls on one connection in one hop to the blocking pool.
    ///
    /// This is cheaper than one hop for each.
    ///
    /// # Errors
    /// Those of `f`; [`Error::ShuttingDown`].
    ///
    /// # Panics
    /// If `f` does, and outside a tokio runtime.
    pub async fn with<T, E>(
        &self,
        f: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.with(f)).await
    }

    /// Runs several calls on one connection, on this thread, which may wait.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn blocking<T, E: From<Error>>(
        &self,
        f: impl FnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.shared.with(f)
    }

    /// [`Connection::create_veth`].
    ///
    /// # Errors
    /// As there.
    pub async fn create_veth(&self, spec: VethSpec) -> Result<VethPair, Error> {
        self.with(move |connection| connection.create_veth(&spec))
            .await
    }

    /// [`Connection::reconfigure`].
    ///
    /// # Errors
    /// As there.
    pub async fn reconfigure(&self, ifindex: u32, change: LinkChange) -> Result<(), Error> {
        self.with(move |connection| connection.reconfigure(ifindex, &change))
            .await
    }

    /// [`Connection::set_up`].
    ///
    /// # Errors
    /// As there.
    pub async fn set_up(&self, ifindex: u32) -> Result<(), Error> {
        self.with(move |connection| connection.set_up(ifindex))
            .await
    }

    /// [`Connection::delete`].
    ///
    /// # Errors
    /// As there.
    pub async fn delete(&self, ifindex: u32) -> Result<bool, Error> {
        self.with(move |connection| connection.delete(ifindex))
            .await
    }

    /// [`Connection::delete_by_name`].
    ///
    /// # Errors
    /// As there.
    pub async fn delete_by_name(&self, name: &str) -> Result<bool, Error> {
        let name = name.to_owned();
        self.with(move |connection| connection.delete_by_name(&name))
            .await
    }

    /// [`Connection::by_name`].
    ///
    /// # Errors
    /// As there.
    pub async fn by_name(&self, name: &str) -> Result<Option<Link>, Error> {
        let name = name.to_owned();
        self.with(move |connection| connection.by_name(&name)).await
    }

    /// [`Connection::by_index`].
    ///
    /// # Errors
    /// As there.
    pub async fn by_index(&self, ifindex: u32) -> Result<Option<Link>, Error> {
        self.with(move |connection| connection.by_index(ifindex))
            .await
    }

    /// [`Connection::list`].
    ///
    /// # Errors
    /// As there.
    pub async fn list(&self, filter: LinkFilter) -> Result<Vec<Link>, Error> {
        self.with(move |connection| connection.list(&filter)).await
    }

    /// [`Connection::add_address`].
    ///
    /// # Errors
    /// As there.
    pub async fn add_address(&self, ifindex: u32, address: Address) -> Result<(), Error> {
        self.with(move |connection| connection.add_address(ifindex, address))
            .await
    }

    /// [`Connection::addresses`].
    ///
    /// # Errors
    /// As there.
    pub async fn addresses(&self, ifindex: u32) -> Result<Vec<AddressState>, Error> {
        self.with(move |connection| connection.addresses(ifindex))
            .await
    }

    /// [`Connection::add_route`].
    ///
    /// # Errors
    /// As there.
    pub async fn add_route(&self, route: Route) -> Result<(), Error> {
        self.with(move |connection| connection.add_route(&route))
            .await
    }

    /// [`Connection::routes`].
    ///
    /// # Errors
    /// As there.
    pub async fn routes(&self, ifindex: u32) -> Result<Vec<Route>, Error> {
        self.with(move |connection| connection.routes(ifindex))
            .await
    }

    /// [`Connection::shape`].
    ///
    /// # Errors
    /// As there.
    pub async fn shape(
        &self,
        ifindex: u32,
        shape: Shape,
        discipline: Discipline,
    ) -> Result<(), Error> {
        self.with(move |connection| connection.shape(ifindex, &shape, discipline))
            .await
    }

    /// [`Connection::shape_of`].
    ///
    /// # Errors
    /// As there.
    pub async fn shape_of(&self, ifindex: u32) -> Result<RootQueue, Error> {
        self.with(move |connection| connection.shape_of(ifindex))
            .await
    }

    /// [`Connection::let_go`].
    ///
    /// # Errors
    /// As there.
    pub async fn let_go(&self, ifindex: u32) -> Result<bool, Error> {
        self.with(move |connection| connection.let_go(ifindex))
            .await
    }

    /// [`Connection::unshape`].
    ///
    /// # Errors
    /// As there.
    pub async fn unshape(&self, ifindex: u32) -> Result<(), Error> {
        self.with(move |connection| connection.unshape(ifindex))
            .await
    }

    /// Moves the link `ifindex` of this namespace to the pod's and configures it there.
    ///
    /// Checks that the name is free, moves with rename, then does as [`Netns::configure_pod_end`]. One
    /// thread, one visit, one socket in the pod.
    ///
    /// The move alone takes 15 ms and more, with RTNL held. Where the pair is not there yet,
    /// [`VethSpec::peer_netns`] and [`Netns::configure_pod_end`] do the same in about one.
    ///
    /// # Errors
    /// [`Error::NameTaken`]: nothing was changed. [`Error::EnterNetns`]: neither. Any other: the
    /// link may be on either side and half configured; delete it by its host end.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn place_pod_end(
        &self,
        netns: &Netns,
        ifindex: u32,
        end: PodEnd,
    ) -> Result<PlacedEnd, Error> {
        let shared = Arc::clone(&self.shared);
        let target = netns.clone();
        netns
            .enter(move || shared.with(|host| pod::place(host, &target, ifindex, &end)))
            .await?
    }

    /// Runs `f` with a socket of nf_tables in this namespace.
    ///
    /// # Errors
    /// Those of `f`; [`Error::OpenSocket`], also where the kernel has no netfilter;
    /// [`Error::ShuttingDown`].
    ///
    /// # Panics
    /// If `f` does, and outside a tokio runtime.
    pub async fn with_netfilter<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Netfilter) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.shared);
        blocking(move || f(&mut shared.open(Netfilter::open)?)).await
    }

    /// Makes a link whose pod end is made in the pod, and configures that end.
    ///
    /// See [`VethSpec::peer_netns`]. It runs `here` on a connection in this namespace, which sets the host
    /// end up, then does as [`Netns::configure_pod_end`], all on one thread: a hop from thread to thread
    /// takes longer than most of these steps. Then it waits until the pod takes packets to its IPv6 addresses,
    /// 2 s at most.
    ///
    /// # Errors
    /// Those of `here`: the pod's namespace was not entered. Else those of
    /// [`Netns::configure_pod_end`]. Delete the link by its host end.
    ///
    /// # Panics
    /// If `here` does.
    pub async fn make_pod_link<T, E>(
        &self,
        netns: &Netns,
        end: PodEnd,
        here: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let pod = netns.clone();
        let work = move || {
            let made = shared.with(here)?;
            pod.enter_for_good()?;
            pod::start(&end)?;
            Ok(made)
        };
        on_own_thread(work).await?
    }

    /// Watches this namespace's links, from the call on.
    ///
    /// Call it first, then [`list`](Self::list).
    ///
    /// # Errors
    /// [`Error::OpenSocket`], [`Error::EnterNetns`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn monitor(&self) -> Result<LinkMonitor, Error> {
        let runtime = Handle::current();
        self.shared.open(|| {
            let _inside = runtime.enter();
            LinkMonitor::open()
        })
    }

    /// Tells from now on when ways to other nodes may have changed.
    ///
    /// # Errors
    /// As for [`Self::monitor`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn watch_ways(&self) -> Result<WayMonitor, Error> {
        let runtime = Handle::current();
        self.shared.open(|| {
            let _inside = runtime.enter();
            WayMonitor::open()
        })
    }

    /// Tells from now on when tables of nf_tables of these names are changed.
    ///
    /// # Errors
    /// As for [`Self::monitor`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn watch_rules(&self, tables: &[&str]) -> Result<RulesetMonitor, Error> {
        let runtime = Handle::current();
        self.shared.open(|| {
            let _inside = runtime.enter();
            RulesetMonitor::open(tables)
        })
    }

    /// [`has_ipsec_policies`] in this namespace.
    ///
    /// # Errors
    /// As there.
    pub async fn has_ipsec_policies(&self) -> Result<bool, Error> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.open(has_ipsec_policies)).await
    }
}

impl Netns {
    /// Configures a link that is in this namespace already, down and bare.
    ///
    /// Settings, MAC, MTU, alias, addresses, up, routes. One thread, one visit, one socket; all requests
    /// but the look-up go in one datagram.
    ///
    /// # Errors
    /// [`Error::LinkVanished`] if there is none of that name; [`Error::EnterNetns`]: nothing was
    /// changed. Else the first step that was refused; later ones may have been carried out, so
    /// delete the link.
    pub async fn configure_pod_end(&self, end: PodEnd) -> Result<PlacedEnd, Error> {
        self.enter(move || pod::configure(&end)).await?
    }
}

/// Runs `work` on the blocking pool.
///
/// # Panics
/// If `work` does, and outside a tokio runtime.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(Error::ShuttingDown.into()),
        },
    }
}
