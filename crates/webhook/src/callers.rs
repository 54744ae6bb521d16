//! Check the callers of the webhook, where the API server has a client certificate.
//!
//! Without an authority for that certificate, anybody who reaches the port may ask for reviews.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use telemetry::chain;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{
    ParsedCertificate, ResolvesServerCert, ServerConfig, VerifierBuilderError, WebPkiClientVerifier,
};
use tokio_rustls::rustls::{
    self, CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore,
    SignatureScheme,
};

/// Time between two looks at the file of the authority.
const LOOK: Duration = Duration::from_secs(10);

/// Which clients of the webhook are served.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientOptions {
    /// File with the certificates of the authorities, PEM, that sign the client
    /// certificate of the API server; a caller without such a certificate is refused. Read again when it changes.
    /// Without it every caller is served
    #[arg(long, value_name = "FILE", env = "PODNET_WEBHOOK_CLIENT_CA_FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// DNS name that a caller's certificate must have as a subject alternative name;
    /// can be repeated, and one of them is enough
    #[arg(long, value_name = "NAME", requires = "client_ca_file", value_parser = dns_name)]
    pub client_name: Vec<ServerName<'static>>,
}

fn dns_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| format!("{text:?} is not a DNS name; write one as apiserver.example.com"))
}

/// Callers cannot be told apart.
#[derive(Debug, thiserror::Error)]
pub enum CallersError {
    /// No version of TLS works.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The file is not there.
    #[error("cannot read --client-ca-file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file has no certificate of an authority.
    #[error("--client-ca-file {}: {why}; write certificates of authorities in PEM", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason for which it has none.
        why: String,
    },
}

/// Accepts TLS connections of callers that may call.
pub(super) struct Callers {
    identity: Arc<dyn ResolvesServerCert>,
    options: ClientOptions,
    acceptor: TlsAcceptor,
    /// Content of the file when it was last read, and the time of that.
    read: Vec<u8>,
    looked: Instant,
}

impl Callers {
    /// # Errors
    /// When there is no TLS, or the file of the authority cannot be used.
    pub(super) fn new(
        identity: Arc<dyn ResolvesServerCert>,
        options: &ClientOptions,
    ) -> Result<Self, CallersError> {
        let read = match &options.client_ca_file {
            Some(path) => content(path)?,
            None => Vec::new(),
        };
        Ok(Self {
            acceptor: acceptor(&identity, options, &read)?,
            identity,
            options: options.clone(),
            read,
            looked: Instant::now(),
        })
    }

    /// Accepts the next connection, by the current content of the file.
    ///
    /// A file that cannot be used any more changes nothing.
    pub(super) fn acceptor(&mut self) -> TlsAcceptor {
        if let Some(path) = &self.options.client_ca_file
            && self.looked.elapsed() >= LOOK
        {
            self.looked = Instant::now();
            let read = content(path).and_then(|now| {
                let changed = now != self.read;
                let acceptor = changed.then(|| acceptor(&self.identity, &self.options, &now));
                Ok(acceptor.transpose()?.map(|acceptor| (acceptor, now)))
            });
            match read {
                Ok(None) => {}
                Ok(Some(read)) => {
                    (self.acceptor, self.read) = read;
                    tracing::info!(file = %path.display(), "the authority of callers is read again");
                }
                Err(error) => {
                    tracing::error!(
                        error = chain(&error),
                        "the authority of callers cannot be read, and the one before stays"
                    );
                }
            }
        }
        self.acceptor.clone()
    }
}

fn content(path: &Path) -> Result<Vec<u8>, CallersError> {
    fs::read(path).map_err(|source| CallersError::File {
        path: path.to_owned(),
        source,
    })
}

fn acceptor(
    identity: &Arc<dyn ResolvesServerCert>,
    options: &ClientOptions,
    authorities: &[u8],
) -> Result<TlsAcceptor, CallersError> {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config = match &options.client_ca_file {
        None => config.with_no_client_auth(),
        Some(path) => {
            let known = known(authorities, provider).map_err(|why| CallersError::Content {
                path: path.clone(),
                why,
            })?;
            let names = options.client_name.clone();
            config.with_client_cert_verifier(Arc::new(Named { known, names }))
        }
    };
    let mut config = config.with_cert_resolver(Arc::clone(identity));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Verifies against these authorities.
fn known(
    authorities: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| match error {
            VerifierBuilderError::NoRootAnchors => "no certificate in it".to_owned(),
            other => other.to_string(),
        })
}

/// Verifies a caller's certificate, and that it has one of the names.
struct Named {
    known: Arc<dyn ClientCertVerifier>,
    /// None: every name.
    names: Vec<ServerName<'static>>,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.known.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .known
            .verify_client_cert(end_entity, intermediates, now)?;
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let mut names = self.names.iter();
        if self.names.is_empty() || names.any(|name| verify_server_name(&certificate, name).is_ok())
        {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::ClientConfig;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::server::ClientHello;
    use tokio_rustls::rustls::sign::CertifiedKey;

    use super::*;

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pem: String,
    }

    type Certificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = params.self_signed(&key).unwrap().pem();
            let issuer = Issuer::new(params, key);
            Self { issuer, pem }
        }

        fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Certificate {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            (vec![certificate.der().clone()], key)
        }
    }

    #[derive(Debug)]
    struct Shown(Arc<CertifiedKey>);

    impl ResolvesServerCert for Shown {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }

    /// Whether a caller with this certificate gets a byte through.
    async fn is_served(
        callers: &mut Callers,
        server: &Authority,
        shown: Option<Certificate>,
    ) -> bool {
        let mut roots = RootCertStore::empty();
        let pem = server.pem.as_bytes();
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
            None => config.with_no_client_auth(),
        };
        let (ours, theirs) = duplex(64 << 10);
        let name = ServerName::try_from("webhook.test").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let client = async {
            let mut stream = connector.connect(name, theirs).await?;
            stream.write_u8(7).await?;
            // A server that does not like the certificate says so now.
            stream.read_u8().await
        };
        let acceptor = callers.acceptor();
        let server = async {
            let mut stream = acceptor.accept(ours).await?;
            let byte = stream.read_u8().await?;
            stream.write_u8(byte).await?;
            stream.flush().await
        };
        let (told, served) = tokio::join!(client, server);
        told.is_ok() && served.is_ok()
    }

    fn callers(server: &Authority, options: &ClientOptions) -> Result<Callers, CallersError> {
        let (chain, key) = server.issue("webhook.test", ExtendedKeyUsagePurpose::ServerAuth);
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider()).unwrap();
        Callers::new(Arc::new(Shown(Arc::new(key))), options)
    }

    /// ATT-04c
    #[tokio::test]
    async fn callers_need_a_certificate_of_the_authority_and_one_of_the_names() {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let (server, known, unknown) = (Authority::new(), Authority::new(), Authority::new());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        fs::write(&file, &known.pem).unwrap();

        let mut anybody = callers(&server, &ClientOptions::default()).unwrap();
        assert!(is_served(&mut anybody, &server, None).await);

        let mut options = ClientOptions {
            client_ca_file: Some(file.clone()),
            client_name: Vec::new(),
        };
        let mut signed = callers(&server, &options).unwrap();
        let api = || known.issue("api.test", ClientAuth);
        assert!(is_served(&mut signed, &server, Some(api())).await);
        assert!(!is_served(&mut signed, &server, None).await);
        let forged = unknown.issue("api.test", ClientAuth);
        assert!(!is_served(&mut signed, &server, Some(forged)).await);
        let of_a_server = known.issue("api.test", ServerAuth);
        assert!(!is_served(&mut signed, &server, Some(of_a_server)).await);

        options.client_name = ["other.test", "api.test"]
            .map(|name| dns_name(name).unwrap())
            .into();
        let mut named = callers(&server, &options).unwrap();
        assert!(is_served(&mut named, &server, Some(api())).await);
        let another = known.issue("pod.test", ClientAuth);
        assert!(!is_served(&mut named, &server, Some(another)).await);

        // The authority changes while the webhook runs; a file that is broken changes nothing.
        for (content, api_is_served, later_is_served) in
            [("broken", true, false), (unknown.pem.as_str(), false, true)]
        {
            fs::write(&file, content).unwrap();
            named.looked = Instant::now().checked_sub(LOOK).unwrap();
            assert_eq!(
                is_served(&mut named, &server, Some(api())).await,
                api_is_served
            );
            let later = unknown.issue("api.test", ClientAuth);
            assert_eq!(
                is_served(&mut named, &server, Some(later)).await,
                later_is_served
            );
        }
        proof::of!("ATT-04c");
    }

    /// ATT-04c
    #[test]
    fn a_file_that_says_nothing_of_callers_is_refused() {
        let server = Authority::new();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        let refused = || {
            let options = ClientOptions {
                client_ca_file: Some(file.clone()),
                client_name: Vec::new(),
            };
            callers(&server, &options)
                .map(drop)
                .unwrap_err()
                .to_string()
        };
        assert!(
            refused().starts_with("cannot read --client-ca-file"),
            "{}",
            refused()
        );
        fs::write(&file, "nothing").unwrap();
        assert!(
            refused().contains("no certificate in it; write certificates"),
            "{}",
            refused()
        );
        proof::of!("ATT-04c");
    }
}
