//! The registration of a domain: renewal, transfer lock, transfer code and its state at the registrar.

use ::domains::{Domain, DomainAuthCode, DomainAutoRenew, DomainError, DomainLock, DomainRenewal, Domains};
use actix_web::web::Data;

use super::DomainName;
use crate::authority::InOrg;
use crate::authority::role::{Admin, Member};
use crate::authority::scope::DnsWrite;
use crate::http::{Area, Body, Json, Path, release_write_permit};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.post("renew", "/v1/orgs/{orgSlug}/domains/{domainName}/renew", renew)
        .summary("Renew a domain")
        .description(
            "Renews first, and then charges the saved payment method. It is safe to repeat: for 24 hours, a request for \
             the same number of years is the same renewal, unless the two requests have different keys. Requires a \
             saved payment method. First completes and charges earlier renewals of the organization that are not \
             complete or not paid: 402 if a charge is declined. The same applies to a renewal of this domain by the \
             registrar while auto-renewal was off (`unpaidCents`).",
        )
        .codes(&[
            &DomainError::PAYMENT_FAILED,
            &DomainError::NOT_MANAGED,
            &DomainError::INCOMPLETE,
            &DomainError::REGISTRAR_REJECTED,
            &DomainError::REGISTRAR_ERROR,
            &DomainError::REGISTRAR_NOT_CONFIGURED,
        ]);
    area.post("set_auto_renew", "/v1/orgs/{orgSlug}/domains/{domainName}/auto-renew", set_auto_renew)
        .summary("Set whether a domain is to be renewed automatically")
        .description("Turning it on charges renewals that the registrar made while it was off (`unbilledCents`).");
    area.post("set_lock", "/v1/orgs/{orgSlug}/domains/{domainName}/lock", set_lock)
        .summary("Lock a domain against transfers to other registrars, or unlock it")
        .codes(&[&DomainError::NOT_MANAGED, &DomainError::REGISTRAR_ERROR, &DomainError::REGISTRAR_NOT_CONFIGURED]);
    area.post("create_auth_code", "/v1/orgs/{orgSlug}/domains/{domainName}/auth-code", auth_code)
        .summary("Get the code for a transfer to another registrar")
        .description("The registry refuses transfers until `transferableAt`. The code is never logged.")
        .codes(&[&DomainError::NOT_MANAGED, &DomainError::REGISTRAR_ERROR, &DomainError::REGISTRAR_NOT_CONFIGURED]);
    area.post("sync", "/v1/orgs/{orgSlug}/domains/{domainName}/sync", sync)
        .summary("Read expiry, lock and nameservers of a domain at the registrar")
        .description("Also detects that a transfer to another registrar is complete.")
        .codes(&[&DomainError::REGISTRAR_ERROR, &DomainError::REGISTRAR_NOT_CONFIGURED]);
}

async fn renew(
    at: InOrg<Admin, DnsWrite>,
    domains: Data<Domains>,
    Path(DomainName(name)): Path<DomainName>,
    Body(renewal): Body<DomainRenewal>,
) -> Result<Json<Domain>, Problem> {
    release_write_permit();
    Ok(Json(domains.renew(&at.actor, at.org.id, &name, renewal).await?))
}

async fn set_auto_renew(
    at: InOrg<Admin, DnsWrite>,
    domains: Data<Domains>,
    Path(DomainName(name)): Path<DomainName>,
    Body(change): Body<DomainAutoRenew>,
) -> Result<Json<Domain>, Problem> {
    Ok(Json(domains.set_auto_renew(&at.actor, at.org.id, &name, change).await?))
}

async fn set_lock(
    at: InOrg<Admin, DnsWrite>,
    domains: Data<Domains>,
    Path(DomainName(name)): Path<DomainName>,
    Body(change): Body<DomainLock>,
) -> Result<Json<Domain>, Problem> {
    release_write_permit();
    Ok(Json(domains.set_lock(&at.actor, at.org.id, &name, change).await?))
}

async fn auth_code(
    at: InOrg<Admin, DnsWrite>,
    domains: Data<Domains>,
    Path(DomainName(name)): Path<DomainName>,
) -> Result<Json<DomainAuthCode>, Problem> {
    release_write_permit();
    Ok(Json(domains.auth_code(&at.actor, at.org.id, &name).await?))
}

async fn sync(
    at: InOrg<Member, DnsWrite>,
    domains: Data<Domains>,
    Path(DomainName(name)): Path<DomainName>,
) -> Result<Json<Domain>, Problem> {
    release_write_permit();
    Ok(Json(domains.sync(&at.actor, at.org.id, &name).await?))
}
