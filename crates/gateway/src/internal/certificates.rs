//! The routes for nodes that terminate TLS.

use actix_web::web::Data;
use certificates::{CertificateReference, Certificates, IssuedCertificate};
use convergence::{Convergence, ConvergenceError};
use kernel::CertificateId;
use protocol::{Certificate, ChallengeResponse, SecretValue};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::authority::NodeCaller;
use crate::http::{Area, Json, Path, Query, path_parameters, text_path_parameters};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("certificate", "/internal/v1/certificates/{certificateId}", certificate)
        .summary("Get a certificate that the node serves, with its private key");
    area.get("challenge", "/internal/v1/acme-challenges/{token}", challenge)
        .summary("Get the response to an HTTP-01 challenge");
}

path_parameters! {
    CertificateId: "The id of the certificate.";
}

text_path_parameters! {
    ChallengeToken: "The token of the challenge.", "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";
}

/// The query of a challenge.
#[derive(Debug, Deserialize, ToSchema)]
struct ChallengeQuery {
    /// The hostname in the request of the certificate authority, without a port.
    #[schema(max_length = 255, example = "www.example.org")]
    host: String,
}

async fn certificate(
    by: NodeCaller,
    Path(id): Path<CertificateId>,
    nodes: Data<Convergence>,
    certificates: Data<Certificates>,
) -> Result<Json<Certificate>, Problem> {
    // Every node serves the certificates of the platform.
    if let Some(project) = certificates.certificate_project(id).await?
        && !nodes.is_home(by.node, project).await?
    {
        return Err(ConvergenceError::NotPlacedOnNode.into());
    }
    let IssuedCertificate { reference, chain, key } = certificates.certificate(id).await?;
    let CertificateReference { id, name, not_after } = reference;
    let (id, not_after) = (id.to_string(), not_after.to_string());
    Ok(Json(Certificate { id, name, chain, key: SecretValue::new(key.reveal().to_owned()), not_after }))
}

async fn challenge(
    _: NodeCaller,
    Path(ChallengeToken(token)): Path<ChallengeToken>,
    Query(ChallengeQuery { host }): Query<ChallengeQuery>,
    certificates: Data<Certificates>,
) -> Result<Json<ChallengeResponse>, Problem> {
    Ok(Json(ChallengeResponse { key_authorization: certificates.challenge_response(&host, &token).await? }))
}
