//! The command lines of etcd and `kube-apiserver`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::pki::Pki;

/// Issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Returns the flags of `etcd` with one member, listening on loopback only.
///
/// It does not wait for the disk, since nothing of it has to survive a crash of the machine.
pub fn etcd(data: &Path, client_port: u16, peer_port: u16) -> Vec<String> {
    let client = loopback(client_port);
    let peer = loopback(peer_port);
    vec![
        "--name=default".to_owned(),
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

/// The differences between one `kube-apiserver` and another.
#[derive(Debug)]
pub struct ApiServerFlags<'a> {
    /// Its certificates.
    pub pki: &'a Pki,
    /// Where it listens.
    pub bind: IpAddr,
    /// TCP port of it.
    pub port: u16,
    /// Address that the `kubernetes` Service leads to; `None`: the one it listens on.
    pub advertise: Option<IpAddr>,
    /// Client port of etcd on loopback.
    pub etcd_port: u16,
    /// Cluster IPs of Services, CIDRs separated by a comma.
    pub services: &'a str,
}

impl ApiServerFlags<'_> {
    /// The arguments.
    pub fn to_args(&self) -> Vec<String> {
        let mut args = vec![
            format!("--bind-address={}", self.bind),
            format!("--secure-port={}", self.port),
            format!("--etcd-servers={}", loopback(self.etcd_port)),
            format!("--service-cluster-ip-range={}", self.services),
            format!("--service-account-issuer={ISSUER}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
            // Webhooks are called at their endpoints: no kube-proxy runs beside the server.
            "--enable-aggregator-routing=true".to_owned(),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--profiling=false".to_owned(),
        ];
        if let Some(address) = self.advertise {
            args.push(format!("--advertise-address={address}"));
        }
        args.extend(self.files());
        args
    }

    fn files(&self) -> Vec<String> {
        let pki = self.pki;
        [
            ("client-ca-file", pki.certificate("ca")),
            ("tls-cert-file", pki.certificate("apiserver")),
            ("tls-private-key-file", pki.key("apiserver")),
            ("service-account-key-file", pki.service_account_public_key()),
            ("service-account-signing-key-file", pki.key("sa")),
            ("kubelet-certificate-authority", pki.certificate("ca")),
            (
                "kubelet-client-certificate",
                pki.certificate("apiserver-kubelet-client"),
            ),
            ("kubelet-client-key", pki.key("apiserver-kubelet-client")),
            (
                "requestheader-client-ca-file",
                pki.certificate("front-proxy-ca"),
            ),
            (
                "proxy-client-cert-file",
                pki.certificate("front-proxy-client"),
            ),
            ("proxy-client-key-file", pki.key("front-proxy-client")),
        ]
        .map(|(flag, path)| format!("--{flag}={}", path.display()))
        .into()
    }
}

/// Plain HTTP: who can reach this loopback is root, or a test.
fn loopback(port: u16) -> String {
    format!("http://{}:{port}", Ipv4Addr::LOCALHOST)
}
