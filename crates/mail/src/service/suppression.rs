//! Suppressed recipients of a project.

use kernel::audit::{Actor, Event};
use kernel::{Email, InvalidField, Page, Paging, ProjectId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Mail, Result, Target};
use crate::address::suppression_key;
use crate::error::MailError;
use crate::model::Suppression;
use crate::repository::SuppressionRepository as _;

impl Mail {
    /// Returns the suppressed recipients of a project, in the order of their addresses.
    ///
    /// # Errors
    /// Returns [`crate::MailError::Store`].
    pub async fn suppressions(&self, project: ProjectId, paging: &Paging<String>) -> Result<Page<Suppression>> {
        let records = self.store.connection().await?.suppression_list(project, paging).await?;
        let suppressions = records.into_iter().map(Suppression::from).collect();
        Ok(Page::cut(suppressions, paging, |suppression| suppression.address.clone()))
    }

    /// Allows mail to a suppressed recipient again. This is a no-op for another address. The audit event does not
    /// contain the address, because it is a contact.
    ///
    /// # Errors
    /// Returns [`MailError::Field`] for a text that is neither a suppressed recipient nor an address, and
    /// [`MailError::Store`].
    pub async fn suppression_clear(&self, actor: &Actor, target: Target, address: &str) -> Result<()> {
        let Target { org, project, .. } = target;
        let address = suppression_key(address);
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                // A provider can name a recipient that is not an `Email`, so delete first. Postgres stores no U+0000.
                if address.contains('\0') || !tx.suppression_delete(project, &address).await? {
                    address.parse::<Email>().map_err(|error| InvalidField::new("address", error))?;
                    return Ok(Outcome::Unchanged(()));
                }
                let event = Event::in_org("suppression.delete", org, project, json!({}));
                Ok::<_, MailError>(Outcome::Changed((), event))
            })
            .await
    }
}
