//! The certificates of hostnames, and the challenges of certification authorities.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::web::{Data, Path, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, web};
use protocol::{Certificate, CertificateReference, Certificates, ChallengeResponse, SecretValue};
use sandbox::Certificate as Generated;
use serde::Deserialize;
use tokio::time::sleep;

use super::{ControlPlane, Shared, is_node};

/// The certificates and challenges.
#[derive(Default)]
pub struct IssuedCertificates {
    /// The certificates that no project owns.
    pub platform: Vec<CertificateReference>,
    certificates: HashMap<String, Certificate>,
    /// The ids of the requested certificates.
    fetched: Vec<String>,
    /// The responses to challenges by token and host.
    challenges: HashMap<(String, String), String>,
    challenge_lookups: usize,
    challenge_delay: Duration,
}

impl ControlPlane {
    /// Stores a certificate. Nodes are not notified of it.
    pub fn store_certificate(&self, name: &str, certificate: &Generated) -> CertificateReference {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (id, not_after) = (format!("crt_{number:026}"), format!("2090-01-01T00:00:{:02}.000Z", number % 60));
        let reference = CertificateReference { id, name: name.to_owned(), not_after };
        let CertificateReference { id, name, not_after } = reference.clone();
        let (chain, key) = (certificate.chain().to_owned(), SecretValue::new(certificate.key().to_owned()));
        let stored = Certificate { id: id.clone(), name, chain, key, not_after };
        self.state.table.lock().unwrap().certificates.certificates.insert(id, stored);
        reference
    }

    /// Sets the certificates of a project.
    pub fn set_certificates(&self, project: &str, certificates: Vec<CertificateReference>) {
        let desired = serde_json::to_value(Certificates { certificates }).unwrap();
        self.set_part(project, "certificates", desired);
    }

    /// Stores a certificate, and lists it as the only one of a project. Returns its id.
    pub fn issue(&self, project: &str, name: &str, certificate: &Generated) -> String {
        let reference = self.store_certificate(name, certificate);
        let id = reference.id.clone();
        self.set_certificates(project, vec![reference]);
        id
    }

    /// Sets the certificates that no project owns. Nodes are notified of them with the next response.
    pub fn set_platform_certificates(&self, certificates: Vec<CertificateReference>) {
        self.state.table.lock().unwrap().certificates.platform = certificates;
    }

    /// Returns how often nodes requested a certificate.
    pub fn certificate_fetches_of(&self, id: &str) -> usize {
        self.state.table.lock().unwrap().certificates.fetched.iter().filter(|fetched| *fetched == id).count()
    }

    /// Returns how often nodes requested any certificate.
    pub fn total_certificate_fetches(&self) -> usize {
        self.state.table.lock().unwrap().certificates.fetched.len()
    }

    /// Knows the response to a challenge from now on.
    pub fn add_challenge(&self, token: &str, host: &str, response: &str) {
        let key = (token.to_owned(), host.to_owned());
        self.state.table.lock().unwrap().certificates.challenges.insert(key, response.to_owned());
    }

    /// Delays the responses to requests for challenges.
    pub fn delay_challenges(&self, delay: Duration) {
        self.state.table.lock().unwrap().certificates.challenge_delay = delay;
    }

    /// Returns how often nodes requested a challenge.
    pub fn challenge_lookups(&self) -> usize {
        self.state.table.lock().unwrap().certificates.challenge_lookups
    }
}

pub fn routes(app: &mut ServiceConfig) {
    app.route("/internal/v1/certificates/{id}", web::get().to(certificate))
        .route("/internal/v1/acme-challenges/{token}", web::get().to(challenge));
}

async fn certificate(request: HttpRequest, id: Path<String>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    table.certificates.fetched.push(id.clone());
    match table.certificates.certificates.get(id.as_str()) {
        Some(certificate) => HttpResponse::Ok().json(certificate),
        None => HttpResponse::NotFound().finish(),
    }
}

#[derive(Deserialize)]
struct Challenge {
    host: String,
}

async fn challenge(
    request: HttpRequest,
    token: Path<String>,
    challenge: Query<Challenge>,
    state: Data<Shared>,
) -> HttpResponse {
    let (found, delay) = {
        let mut table = state.table.lock().unwrap();
        if !is_node(&request, &table) {
            return HttpResponse::Unauthorized().finish();
        }
        table.certificates.challenge_lookups += 1;
        let key = (token.into_inner(), challenge.into_inner().host);
        (table.certificates.challenges.get(&key).cloned(), table.certificates.challenge_delay)
    };
    sleep(delay).await;
    match found {
        Some(key_authorization) => HttpResponse::Ok().json(ChallengeResponse { key_authorization }),
        None => HttpResponse::NotFound().finish(),
    }
}
