//! TLS: the certificate that is shown can change while connections are open.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self};
use tokio_rustls::server::TlsStream;

use super::certificates::Serving;

/// How long a client may take to say hello.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Clients that say hello at once; others wait for a place.
const HANDSHAKES: usize = 256;

/// Who the webhook says it is.
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

/// Connections whose handshake is done. A client that is slow with it holds nobody up.
pub(super) struct TlsListener {
    tcp: TcpListener,
    tls: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl TlsListener {
    /// # Errors
    /// When the cryptography cannot do any version of TLS.
    pub(super) fn new(tcp: TcpListener, identity: &Arc<Identity>) -> Result<Self, rustls::Error> {
        let identity: Arc<dyn ResolvesServerCert> = Arc::<Identity>::clone(identity);
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(identity);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            tcp,
            tls: TlsAcceptor::from(Arc::new(config)),
            handshakes: JoinSet::new(),
        })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
                // It logs errors and goes on.
                (stream, address) = Listener::accept(&mut self.tcp), if self.handshakes.len() < HANDSHAKES => {
                    let tls = self.tls.clone();
                    self.handshakes.spawn(handshake(tls, stream, address));
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
) -> Option<(TlsStream<TcpStream>, SocketAddr)> {
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => return Some((stream, address)),
        Ok(Err(error)) => tracing::debug!(%address, %error, "no TLS connection"),
        Err(_) => tracing::debug!(%address, "no TLS connection: the client said nothing"),
    }
    None
}
