//! Audit events of organizations that a change affects in addition to its own.

use kernel::audit::{Actor, Event};

use crate::{Connection, Result, Store, audit};

impl Store {
    /// Appends an audit event of another organization that the change affects, in the transaction of the change.
    /// [`Outcome::Changed`](crate::Outcome::Changed) has the event of the operation itself.
    ///
    /// The actor is the system: an organization's log does not name the users of another one.
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn append_system_event(&self, tx: &mut Connection, job: &str, event: &Event) -> Result<()> {
        audit::append(tx, self.clock_rng(), &Actor::service(job), event).await
    }
}
