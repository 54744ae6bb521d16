use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::*;

const BEGIN: u64 = 1_800_000_000;
const NAME: &str = "podnet-webhook.podnet-system.svc";

fn lifetimes() -> Lifetimes {
    Lifetimes::new(8000, 900).expect("they fit")
}

fn names(further: &[&str]) -> Names {
    let further: Vec<String> = further.iter().map(ToString::to_string).collect();
    Names::of_service("podnet-webhook", "podnet-system", &further)
}

fn first() -> Certificates {
    Certificates::new(BEGIN, lifetimes(), &names(&[])).expect("certificates can be made")
}

fn due(certificates: &Certificates, now: u64, published: bool) -> Option<Step> {
    certificates.due(now, lifetimes(), &names(&[]), published)
}

fn after(certificates: &Certificates, step: Step, now: u64) -> Certificates {
    let after = certificates.after(step, now, lifetimes(), &names(&[]));
    after.expect("certificates can be made")
}

/// Verifies `serving` as a TLS client that trusts `bundle` does.
fn verify(bundle: &str, serving: &Serving, name: &str, now: u64) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        let authority = authority.expect("PEM");
        roots.add(authority).expect("an authority");
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .expect("authorities");
    let shown = CertificateDer::from_pem_slice(serving.certificate.as_bytes()).expect("PEM");
    let name = ServerName::try_from(name).expect("a name");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let verdict = verifier.verify_server_cert(&shown, &[], &name, &[], now);
    verdict.map(|_| ()).map_err(|error| error.to_string())
}

/// Kubernetes webhooks, "Contacting the webhook": `<service>.<namespace>.svc`.
///
/// That is the name in the certificate.
#[test]
fn the_first_certificate_is_trusted_for_the_names_of_the_service_and_the_further_ones() {
    let names = names(&["127.0.0.1"]);
    let made = Certificates::new(BEGIN, lifetimes(), &names).expect("certificates can be made");
    for name in [
        NAME,
        "podnet-webhook.podnet-system.svc.cluster.local",
        "127.0.0.1",
    ] {
        assert_eq!(
            verify(&made.bundle(), made.serving(), name, BEGIN),
            Ok(()),
            "{name}"
        );
    }
    for (name, now) in [("other.podnet-system.svc", BEGIN), (NAME, BEGIN + 901)] {
        verify(&made.bundle(), made.serving(), name, now).unwrap_err();
    }
    let others = first();
    verify(&others.bundle(), made.serving(), NAME, BEGIN).unwrap_err();
}

/// A rotation fails no request of a client and a replica that lag behind.
///
/// That is so when a replica shows the certificate of its last look, and when the API server trusts the
/// bundle of half a settling time ago.
#[test]
fn a_client_and_a_replica_that_lag_behind_trust_each_other_through_every_rotation() {
    let lag = usize::try_from(lifetimes().settle() / 15 / 2).expect("a small number");
    let mut certificates = first();
    let mut authorities = std::collections::BTreeSet::new();
    let mut bundles = vec![certificates.bundle()];
    let mut shown = certificates.serving().clone();
    for now in (BEGIN..BEGIN + 20_000).step_by(15) {
        let oldest = bundles.len().saturating_sub(lag).min(bundles.len() - 1);
        for bundle in [&bundles[oldest], &bundles[bundles.len() - 1]] {
            for serving in [&shown, certificates.serving()] {
                assert_eq!(
                    verify(bundle, serving, NAME, now),
                    Ok(()),
                    "after {} s",
                    now - BEGIN
                );
            }
        }
        shown = certificates.serving().clone();
        while let Some(step) = due(&certificates, now, true) {
            certificates = after(&certificates, step, now);
        }
        authorities.insert(certificates.current.certificate.clone());
        bundles.push(certificates.bundle());
    }
    assert!(authorities.len() > 4, "{} authorities", authorities.len());
    assert!(
        certificates.retired.len() <= 2,
        "old authorities are forgotten"
    );
}

#[test]
fn an_authority_signs_only_after_every_configuration_had_it_for_a_while() {
    let half = BEGIN + 4000;
    let settle = lifetimes().settle();
    // The serving certificate is not what this is about.
    let fresh = after(&first(), Step::Renew, half);
    assert_eq!(due(&fresh, half - 1, true), None);
    assert_eq!(due(&fresh, half, true), Some(Step::MakeNext));
    let with_next = after(&fresh, Step::MakeNext, half);
    assert_eq!(with_next.serving(), fresh.serving());
    assert_eq!(due(&with_next, half + 1, false), None);
    assert_eq!(due(&with_next, half + 1, true), Some(Step::NotePublished));
    let published = after(&with_next, Step::NotePublished, half + 1);
    assert_eq!(due(&published, half + settle - 500, true), None);
    assert_eq!(
        due(&published, half + 1 + settle, true),
        Some(Step::Promote)
    );
    // Nobody could be told, and the current one ends.
    assert_eq!(
        due(&with_next, BEGIN + 8000 - settle, false),
        Some(Step::Promote)
    );
}

#[test]
fn a_serving_certificate_is_renewed_when_a_third_is_left() {
    let made = first();
    assert_eq!(due(&made, BEGIN + 599, true), None);
    assert_eq!(due(&made, BEGIN + 600, false), Some(Step::Renew));
    let renewed = after(&made, Step::Renew, BEGIN + 600);
    assert_eq!(renewed.serving().expires, BEGIN + 1500);
    assert_eq!(renewed.bundle(), made.bundle());
    assert_eq!(due(&renewed, BEGIN + 600, true), None);
}

/// Two versions side by side, as in a rolling update, keep each other's names.
#[test]
fn a_certificate_keeps_the_names_of_others() {
    let made = first();
    let more = names(&["10.0.0.1"]);
    assert_eq!(made.due(BEGIN, lifetimes(), &more, true), Some(Step::Renew));
    let renewed = made
        .after(Step::Renew, BEGIN, lifetimes(), &more)
        .expect("made");
    assert_eq!(renewed.due(BEGIN, lifetimes(), &more, true), None);
    assert_eq!(due(&renewed, BEGIN, true), None);
    for name in [NAME, "10.0.0.1"] {
        assert_eq!(
            verify(&renewed.bundle(), renewed.serving(), name, BEGIN),
            Ok(())
        );
    }
}

#[test]
fn certificates_that_ended_while_nobody_looked_are_made_anew() {
    let made = first();
    assert_eq!(due(&made, BEGIN + 8000, true), Some(Step::StartAnew));
    let with_next = after(&made, Step::MakeNext, BEGIN + 4000);
    assert_eq!(due(&with_next, BEGIN + 8000, false), Some(Step::Promote));
    assert_eq!(
        due(&with_next, BEGIN + 12_000, false),
        Some(Step::StartAnew)
    );
    let anew = after(&made, Step::StartAnew, BEGIN + 9000);
    assert_eq!(
        verify(&anew.bundle(), anew.serving(), NAME, BEGIN + 9000),
        Ok(())
    );
}

#[test]
fn the_secret_says_all_there_is() {
    let made = after(&first(), Step::MakeNext, BEGIN + 4000);
    let text = serde_json::to_string(&made).expect("JSON");
    let read: Certificates = serde_json::from_str(&text).expect("what was written");
    assert_eq!(read, made);
}

#[test]
fn an_authority_lives_twice_as_long_as_what_it_signs() {
    for (authority, serving, fits) in [(8, 4, true), (8, 5, false), (100, 2, false), (6, 3, true)] {
        let made = Lifetimes::new(authority, serving);
        assert_eq!(made.is_ok(), fits, "{authority} {serving}");
    }
    let message = Lifetimes::new(8, 5).unwrap_err().to_string();
    assert!(message.contains("--certificate-lifetime 5 s"), "{message}");
}
