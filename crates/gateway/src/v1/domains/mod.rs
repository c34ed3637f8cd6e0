//! Domains of an organization.

mod registration;

use ::domains::{
    Created, Domain, DomainCheck, DomainDetail, DomainError, DomainImport, DomainOffers, DomainPurchase, Domains,
};
use actix_web::web::Data;
use kernel::ownership::VerifyRecord;
use kernel::{DomainId, Page};

use crate::authority::InOrg;
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{DnsRead, DnsWrite};
use crate::http::{
    Body, CreatedOrExisting, Json, Pagination, Path, Routes, release_write_permit, text_path_parameters,
};
use crate::problem::Problem;
use crate::require::RequireCore;

const DOMAINS: &str = "/v1/orgs/{orgSlug}/domains";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("domains", "Domains of an organization: purchase, import, renewal and transfer away.");
    area.get("list", DOMAINS, list).summary("List the domains of an organization, newest first");
    area.post("purchase", DOMAINS, purchase)
        .summary("Buy a domain (201), or return the one that was bought (200)")
        .description(
            "Charges the saved payment method, registers the domain, creates its zone and sets the nameservers. It is \
             safe to repeat: after a 502, the same request continues where the purchase stopped. The registry sends its \
             verification mail to the address of the contact.",
        )
        .codes(&[
            &DomainError::PAYMENT_FAILED,
            &DomainError::TAKEN,
            &DomainError::NAME_UNAVAILABLE,
            &DomainError::PRICE_CHANGED,
            &DomainError::REGISTRAR_REJECTED,
            &DomainError::INCOMPLETE,
            &DomainError::REGISTRAR_ERROR,
            &DomainError::REGISTRAR_NOT_CONFIGURED,
            &DomainError::DNS_NOT_CONFIGURED,
            &::dns::DnsError::ZONE_LIMIT,
        ])
        .link("domains.get", "domainName", "/name");
    area.post("check", "/v1/orgs/{orgSlug}/domains/check", check)
        .summary("Get the availability and the prices of names")
        .description("Spends a request at the registrar.")
        .codes(&[&DomainError::REGISTRAR_ERROR, &DomainError::REGISTRAR_NOT_CONFIGURED]);
    area.post("import", "/v1/orgs/{orgSlug}/domains/import", import)
        .summary("Import a domain that is registered elsewhere (201), or return the imported one (200)")
        .description("Creates a zone, and calls no registrar. Then set the returned nameservers at the registrar.")
        .codes(&[&DomainError::DNS_NOT_CONFIGURED, &::dns::DnsError::ZONE_LIMIT])
        .error_detail::<VerifyRecord>(&DomainError::TAKEN, "verify")
        .link("domains.get", "domainName", "/name");
    area.get("get", "/v1/orgs/{orgSlug}/domains/{domainName}", get).summary("Get a domain with its last 50 changes");
    registration::routes(&mut area);
}

text_path_parameters! {
    DomainName: "The domain's name, in Unicode or punycode.", "example.org";
}

async fn list(
    at: InOrg<Viewer, DnsRead>,
    _: RequireCore,
    domains: Data<Domains>,
    Pagination(pages): Pagination<DomainId>,
) -> Result<Json<Page<Domain>>, Problem> {
    Ok(Json(domains.list(at.org.id, &pages).await?))
}

async fn purchase(
    at: InOrg<Admin, DnsWrite>,
    _: RequireCore,
    domains: Data<Domains>,
    Body(purchase): Body<DomainPurchase>,
) -> Result<CreatedOrExisting<Domain>, Problem> {
    release_write_permit();
    Ok(domains.purchase(&at.actor, at.org.id, purchase).await?.into())
}

async fn check(
    at: InOrg<Member, DnsWrite>,
    _: RequireCore,
    domains: Data<Domains>,
    Body(check): Body<DomainCheck>,
) -> Result<Json<DomainOffers>, Problem> {
    release_write_permit();
    Ok(Json(domains.check(at.org.id, check).await?))
}

async fn import(
    at: InOrg<Admin, DnsWrite>,
    _: RequireCore,
    domains: Data<Domains>,
    Body(import): Body<DomainImport>,
) -> Result<CreatedOrExisting<Domain>, Problem> {
    Ok(domains.import(&at.actor, at.org.id, import).await?.into())
}

async fn get(
    at: InOrg<Viewer, DnsRead>,
    domains: Data<Domains>,
    Path(DomainName(name)): Path<DomainName>,
) -> Result<Json<DomainDetail>, Problem> {
    Ok(Json(domains.get(at.org.id, &name).await?))
}

impl From<Created> for CreatedOrExisting<Domain> {
    fn from(Created { domain, is_new }: Created) -> Self {
        if is_new { Self::Created(domain) } else { Self::Existing(domain) }
    }
}
