//! Imports domains that are registered elsewhere.

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, OrgId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Created, Domains, Result, or_taken};
use crate::error::DomainError;
use crate::model::{DomainImport, DomainName, DomainState};
use crate::repository::{DomainRecord, DomainRepository as _};

impl Domains {
    /// Imports a domain that is registered elsewhere, by creating its zone. Does not call the registrar. The deletion
    /// of the zone ends the import.
    ///
    /// # Errors
    /// [`DomainError::Fields`], [`DomainError::Taken`], [`DomainError::ZoneTaken`], [`DomainError::DnsNotConfigured`],
    /// [`DomainError::Zone`].
    pub async fn import(&self, actor: &Actor, org: OrgId, import: DomainImport) -> Result<Created> {
        let nameservers = self.ports.zones.nameservers().ok_or(DomainError::DnsNotConfigured)?;
        let name = DomainName::parse(&import.name).map_err(|error| InvalidField::new("name", error))?;
        let existing = self.store.connection().await?.domain_find(org, name.as_str()).await?;
        if let Some(domain) = existing.filter(|domain| domain.state != DomainState::TransferredOut) {
            return Ok(Created { domain: self.view(domain), is_new: false });
        }
        let proof = self.ports.zones.prepare(actor, org, name.as_str()).await?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                self.ports.zones.create(tx, org, name.as_str(), &proof).await?;
                let new = self.new_domain(org, &name, DomainState::External, true);
                let new = DomainRecord { nameservers: nameservers.clone(), ..new };
                let domain = match tx.domain_lock(org, name.as_str()).await? {
                    None if tx.domain_insert(&new).await? => new,
                    None => return Err(DomainError::Taken(name.to_string())),
                    Some(left) if left.state == DomainState::TransferredOut => {
                        let back =
                            DomainRecord { id: left.id, revision: left.revision, created_at: left.created_at, ..new };
                        tx.domain_update(&back).await.map_err(|error| or_taken(error, &back.name))?;
                        back
                    }
                    Some(domain) => {
                        return Ok(Outcome::Unchanged(Created { domain: self.view(domain), is_new: false }));
                    }
                };
                let event = Event::in_org("domain.import", org, domain.id, json!({ "domain": domain.name }));
                self.append_history(tx, domain.id, &event, actor.user).await?;
                Ok::<_, DomainError>(Outcome::Changed(Created { domain: self.view(domain), is_new: true }, event))
            })
            .await
    }
}
