//! Make the certificates and kubeconfigs of a Kubernetes control plane.
//!
//! kubernetes.io, "PKI certificates and requirements".
//!
//! Keys are ECDSA P-256. Nothing expires: rcgen's default is valid from 1975 to 4096.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

/// Members of this group may do everything.
const ADMINS: &str = "system:masters";
/// The group of kubelets, for the Node authorizer.
const NODES: &str = "system:nodes";
/// The programs next to the API server that are clients of it, by their user names.
const CLIENTS: [(&str, &str, Option<&str>); 4] = [
    ("admin", "admin", Some(ADMINS)),
    (
        "kube-controller-manager",
        "system:kube-controller-manager",
        None,
    ),
    ("kube-scheduler", "system:kube-scheduler", None),
    ("kube-proxy", "system:kube-proxy", None),
];

/// A node for which a kubelet's certificate is made.
#[derive(Debug, Clone)]
pub struct NodeName {
    /// Name of the Node object.
    pub name: String,
    /// Addresses by which the API server calls the kubelet.
    pub addresses: Vec<String>,
}

/// A directory of certificates, keys and kubeconfigs.
#[derive(Debug, Clone)]
pub struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// Makes everything new in `dir`, which must exist.
    ///
    /// `server` is the URL in the kubeconfigs, `names` are the DNS names and addresses by which the API
    /// server is called.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn create(
        dir: &Path,
        server: &str,
        names: &[String],
        nodes: &[NodeName],
    ) -> io::Result<Self> {
        let pki = Self {
            dir: dir.to_owned(),
        };
        let ca = pki.authority("ca", "kubernetes-ca")?;
        let front = pki.authority("front-proxy-ca", "front-proxy-ca")?;
        pki.service_accounts()?;

        let both = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let [serves, calls] = &both;
        let only = std::slice::from_ref;
        pki.issue(
            &ca,
            "apiserver",
            subject("kube-apiserver", None),
            only(serves),
            names,
        )?;
        let kubelets = subject("kube-apiserver-kubelet-client", Some(ADMINS));
        pki.issue(&ca, "apiserver-kubelet-client", kubelets, only(calls), &[])?;
        let proxy = subject("front-proxy-client", None);
        pki.issue(&front, "front-proxy-client", proxy, only(calls), &[])?;
        let local = ["localhost", "127.0.0.1"].map(String::from);
        for (file, user, group) in CLIENTS {
            pki.issue(&ca, file, subject(user, group), &both, &local)?;
            pki.write_kubeconfig(file, server)?;
        }
        for node in nodes {
            let file = format!("kubelet-{}", node.name);
            let user = format!("system:node:{}", node.name);
            let mut names = node.addresses.clone();
            names.push(node.name.clone());
            pki.issue(&ca, &file, subject(&user, Some(NODES)), &both, &names)?;
            pki.write_kubeconfig(&file, server)?;
        }
        Ok(pki)
    }

    /// The directory of an earlier [`Pki::create`].
    pub fn open(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Certificate of `name`, PEM.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.crt"))
    }

    /// Private key of `name`, PEM.
    pub fn key(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.key"))
    }

    /// Returns the public key of the service account tokens, PEM.
    ///
    /// The private one is [`Pki::key`] of `sa`.
    pub fn service_account_public_key(&self) -> PathBuf {
        self.dir.join("sa.pub")
    }

    /// How `name` calls the API server.
    pub fn kubeconfig(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.kubeconfig"))
    }

    fn authority(&self, file: &str, name: &str) -> io::Result<Issuer<'static, KeyPair>> {
        let key = new_key();
        let mut params = subject(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("a name of plain letters");
        fs::write(self.certificate(file), certificate.pem())?;
        fs::write(self.key(file), key.serialize_pem())?;
        Ok(Issuer::new(params, key))
    }

    fn issue(
        &self,
        by: &Issuer<'static, KeyPair>,
        file: &str,
        mut params: CertificateParams,
        usages: &[ExtendedKeyUsagePurpose],
        names: &[String],
    ) -> io::Result<()> {
        let with_names = CertificateParams::new(names.to_vec()).map_err(io::Error::other)?;
        params.subject_alt_names = with_names.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        let key = new_key();
        let certificate = params.signed_by(&key, by).map_err(io::Error::other)?;
        fs::write(self.certificate(file), certificate.pem())?;
        fs::write(self.key(file), key.serialize_pem())
    }

    fn service_accounts(&self) -> io::Result<()> {
        let key = new_key();
        fs::write(self.key("sa"), key.serialize_pem())?;
        fs::write(self.service_account_public_key(), key.public_key_pem())
    }

    fn write_kubeconfig(&self, name: &str, server: &str) -> io::Result<()> {
        // Every kubeconfig is YAML, and JSON is YAML.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "podnet", "cluster": {
                "server": server,
                "certificate-authority": self.certificate("ca"),
            }}],
            "users": [{"name": name, "user": {
                "client-certificate": self.certificate(name),
                "client-key": self.key(name),
            }}],
            "contexts": [{"name": "podnet", "context": {"cluster": "podnet", "user": name}}],
            "current-context": "podnet",
        });
        fs::write(self.kubeconfig(name), format!("{config:#}\n"))
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

fn subject(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = rcgen::DistinguishedName::new();
    // Kubernetes reads groups from the organisation and the user from the common name.
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params
}
