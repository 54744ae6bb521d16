//! TLS: the certificate that is shown can change while connections are open.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self};
use tokio_rustls::server::TlsStream;

use super::callers::{Callers, CallersError, ClientOptions};
use super::certificates::Serving;
use super::connection::{Connection, Times};

/// How long a client may take to say hello.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Clients that are served or say hello at once; others wait for a place.
const CONNECTIONS: usize = 256;

/// Certificate of the webhook, as it was last set.
#[derive(Debug, Default)]
pub(super) struct Identity {
    shown: Mutex<Option<Shown>>,
}

struct Shown {
    certificate: String,
    key: Arc<CertifiedKey>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a certificate")
    }
}

impl Identity {
    /// Shows another certificate from now on.
    ///
    /// # Errors
    /// When certificate or key are not usable.
    pub(super) fn show(&self, serving: &Serving) -> Result<(), rustls::Error> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown
            .as_ref()
            .is_some_and(|shown| shown.certificate == serving.certificate)
        {
            return Ok(());
        }
        let unreadable = |error: PemError| rustls::Error::General(error.to_string());
        let chain = CertificateDer::pem_slice_iter(serving.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes()).map_err(unreadable)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        *shown = Some(Shown {
            certificate: serving.certificate.clone(),
            key: Arc::new(key),
        });
        Ok(())
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.as_ref().map(|shown| Arc::clone(&shown.key))
    }
}

/// A listener for connections whose TLS handshake is done.
///
/// A client that is slow with it holds up no other.
pub(super) struct TlsListener {
    tcp: TcpListener,
    tls: Callers,
    places: Arc<Semaphore>,
    handshakes: JoinSet<Option<(Served, SocketAddr)>>,
}

/// A connection with its place.
pub(super) type Served = Connection<TlsStream<TcpStream>>;

impl TlsListener {
    /// # Errors
    /// When the cryptography cannot do any version of TLS, or nobody can say whose certificates of
    /// clients are good.
    pub(super) fn new(
        tcp: TcpListener,
        identity: &Arc<Identity>,
        clients: &ClientOptions,
    ) -> Result<Self, CallersError> {
        let identity: Arc<dyn ResolvesServerCert> = Arc::<Identity>::clone(identity);
        Ok(Self {
            tcp,
            tls: Callers::new(identity, clients)?,
            places: Arc::new(Semaphore::new(CONNECTIONS)),
            handshakes: JoinSet::new(),
        })
    }
}

impl Listener for TlsListener {
    type Io = Served;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
                // It logs errors and goes on. Who finds no place waits for one in the kernel's queue.
                (place, (stream, address)) = next(&self.places, &mut self.tcp) => {
                    let tls = self.tls.acceptor();
                    self.handshakes.spawn(handshake(tls, stream, address, place));
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

/// The next client, when there is a place for it.
async fn next(
    places: &Arc<Semaphore>,
    tcp: &mut TcpListener,
) -> (OwnedSemaphorePermit, (TcpStream, SocketAddr)) {
    loop {
        // It is never closed.
        if let Ok(place) = Arc::clone(places).acquire_owned().await {
            return (place, Listener::accept(tcp).await);
        }
    }
}

async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    place: OwnedSemaphorePermit,
) -> Option<(Served, SocketAddr)> {
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let connection = Connection::new(stream, Times::default(), place);
            return Some((connection, address));
        }
        Ok(Err(error)) => tracing::debug!(%address, %error, "no TLS connection"),
        Err(_) => tracing::debug!(%address, "no TLS connection: the client said nothing"),
    }
    None
}
