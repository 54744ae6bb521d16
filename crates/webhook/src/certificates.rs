//! Two authorities that overlap, and a serving certificate: which is made when.
//!
//! The API server trusts what stands in `caBundle`, and learns of a change a moment later. So a new
//! authority is published first and signs later, and an old one stays in the bundle until nothing it
//! signed can be valid. At every moment, every serving certificate that a replica may still show is
//! one the API server trusts.
//!
//! Times are seconds since 1970.

#[cfg(test)]
mod tests;

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

/// Age that a new certificate claims, seconds: clocks of a cluster differ.
const SKEW: u64 = 60 * 60;

/// Certificates could not be made, or their lifetimes do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// An authority would not live as long as what it signs.
    #[error(
        "--certificate-lifetime {serving} s must be at least 3 and at most half of --ca-lifetime \
         {authority} s"
    )]
    Lifetimes {
        /// As given.
        serving: u64,
        /// As given.
        authority: u64,
    },
    /// A name or key is not usable.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

/// How long certificates are valid, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    authority: u64,
    serving: u64,
}

impl Lifetimes {
    /// The lifetimes of an authority and of a serving certificate, seconds.
    ///
    /// # Errors
    /// When the second is too short, or more than half of the first.
    pub const fn new(authority: u64, serving: u64) -> Result<Self, CertificateError> {
        if serving < 3 || serving > authority / 2 {
            return Err(CertificateError::Lifetimes { serving, authority });
        }
        Ok(Self { authority, serving })
    }

    /// How long a published authority waits before it signs.
    const fn settle(self) -> u64 {
        let eighth = self.authority / 8;
        if eighth < 3600 { eighth } else { 3600 }
    }

    /// Returns the time between two looks at the certificates.
    ///
    /// It is short enough that every replica has the new serving certificate long before the old one
    /// ends, and that a `caBundle` somebody has taken away is back soon.
    pub fn look_every(self) -> Duration {
        Duration::from_secs(self.serving)
            .div_f64(12.0)
            .min(Duration::from_secs(15))
    }
}

/// By which names the API server calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// The names of a Service, and further ones.
    pub fn of_service(service: &str, namespace: &str, further: &[String]) -> Self {
        let mut names = vec![
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ];
        names.extend_from_slice(further);
        Self(names)
    }
}

/// An authority that can sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    name: String,
    /// PEM.
    certificate: String,
    /// PEM.
    key: String,
    made: u64,
    expires: u64,
}

/// An authority that will sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Heir {
    authority: Authority,
    /// When every webhook configuration was seen to have it.
    published: Option<u64>,
}

/// An authority that signs no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Retired {
    /// PEM.
    certificate: String,
    expires: u64,
}

/// Certificate and key that the webhook shows to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
    names: Vec<String>,
    made: u64,
    /// End of its validity.
    pub expires: u64,
}

/// All certificates of the webhook, as the Secret keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    current: Authority,
    next: Option<Heir>,
    retired: Vec<Retired>,
    serving: Serving,
}

/// Next step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing of it can be used any more.
    StartAnew,
    /// The current authority is half over: make the next.
    MakeNext,
    /// Every configuration has the next authority: write that down.
    NotePublished,
    /// The next authority is known everywhere: let it sign.
    Promote,
    /// The serving certificate is nearly over, or lacks a name.
    Renew,
    /// Certificates signed by a retired authority have ended: remove it.
    Forget,
}

impl Certificates {
    /// The first ones.
    ///
    /// # Errors
    /// When a name is no DNS name or address.
    pub fn new(now: u64, lifetimes: Lifetimes, names: &Names) -> Result<Self, CertificateError> {
        let current = Authority::new(now, lifetimes)?;
        let serving = current.issue(now, lifetimes, names.0.clone())?;
        Ok(Self {
            current,
            next: None,
            retired: Vec::new(),
            serving,
        })
    }

    /// Returns the step that is due now, if any.
    ///
    /// `published`: every webhook configuration has [`Certificates::bundle`].
    pub fn due(
        &self,
        now: u64,
        lifetimes: Lifetimes,
        names: &Names,
        published: bool,
    ) -> Option<Step> {
        let settled = |heir: &Heir| {
            let since = heir.published.map(|at| now.saturating_sub(at));
            since.is_some_and(|since| since >= lifetimes.settle())
                // Better known to some than to nobody.
                || now + lifetimes.settle() >= self.current.expires
        };
        match &self.next {
            None if now >= self.current.expires => return Some(Step::StartAnew),
            None if now >= self.current.middle() => return Some(Step::MakeNext),
            Some(heir) if now >= heir.authority.expires => return Some(Step::StartAnew),
            Some(heir) if settled(heir) => return Some(Step::Promote),
            Some(heir) if heir.published.is_none() && published => {
                return Some(Step::NotePublished);
            }
            _ => {}
        }
        let lacks_name = names
            .0
            .iter()
            .any(|name| !self.serving.names.contains(name));
        let left = self.serving.expires.saturating_sub(now);
        let is_over = 3 * left <= self.serving.expires - self.serving.made
            // A new one would not be valid for longer.
            && self.serving.expires < self.current.expires;
        if lacks_name || is_over {
            return Some(Step::Renew);
        }
        let is_gone = |retired: &Retired| now >= retired.expires;
        self.retired.iter().any(is_gone).then_some(Step::Forget)
    }

    /// The certificates after `step`.
    ///
    /// # Errors
    /// When a name is no DNS name or address.
    pub fn after(
        &self,
        step: Step,
        now: u64,
        lifetimes: Lifetimes,
        names: &Names,
    ) -> Result<Self, CertificateError> {
        let mut after = self.clone();
        match step {
            Step::StartAnew => return Self::new(now, lifetimes, names),
            Step::MakeNext => {
                after.next = Some(Heir {
                    authority: Authority::new(now, lifetimes)?,
                    published: None,
                });
            }
            Step::NotePublished => {
                if let Some(heir) = &mut after.next {
                    heir.published = Some(now);
                }
            }
            Step::Promote => {
                if let Some(heir) = after.next.take() {
                    let before = std::mem::replace(&mut after.current, heir.authority);
                    after.retired.push(Retired {
                        certificate: before.certificate,
                        expires: before.expires,
                    });
                    after.serving = after.issue(now, lifetimes, names)?;
                }
            }
            Step::Renew => after.serving = self.issue(now, lifetimes, names)?,
            Step::Forget => after.retired.retain(|retired| now < retired.expires),
        }
        Ok(after)
    }

    /// Returns the authorities that the API server is to trust, PEM.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|heir| &heir.authority.certificate);
        let retired = self.retired.iter().map(|retired| &retired.certificate);
        std::iter::once(&self.current.certificate)
            .chain(next)
            .chain(retired)
            .cloned()
            .collect()
    }

    /// Returns the serving certificate and its key.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// When the authority that signs ends.
    pub fn authority_expires(&self) -> u64 {
        self.current.expires
    }

    /// Issues a serving certificate, with the old one's names and these.
    ///
    /// Replicas of two versions may want different names: the certificate has all of them.
    fn issue(
        &self,
        now: u64,
        lifetimes: Lifetimes,
        names: &Names,
    ) -> Result<Serving, CertificateError> {
        let mut all = self.serving.names.clone();
        all.extend(names.0.iter().cloned());
        all.sort_unstable();
        all.dedup();
        self.current.issue(now, lifetimes, all)
    }
}

impl Authority {
    fn new(now: u64, lifetimes: Lifetimes) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let name = format!("podnet-webhook-ca-{now}");
        let expires = now + lifetimes.authority;
        let mut params = Self::params(&name);
        params.not_before = moment(now.saturating_sub(SKEW)).into();
        params.not_after = moment(expires).into();
        Ok(Self {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
            name,
            made: now,
            expires,
        })
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    fn middle(&self) -> u64 {
        self.made + (self.expires - self.made) / 2
    }

    fn issue(
        &self,
        now: u64,
        lifetimes: Lifetimes,
        names: Vec<String>,
    ) -> Result<Serving, CertificateError> {
        let expires = self.expires.min(now + lifetimes.serving);
        let mut params = CertificateParams::new(names.clone())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "podnet-webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = moment(now.saturating_sub(SKEW)).into();
        params.not_after = moment(expires).into();
        let key = KeyPair::generate()?;
        let issuer = Issuer::new(Self::params(&self.name), KeyPair::from_pem(&self.key)?);
        Ok(Serving {
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
            names,
            made: now,
            expires,
        })
    }
}

fn moment(seconds: u64) -> std::time::SystemTime {
    std::time::UNIX_EPOCH + Duration::from_secs(seconds)
}
