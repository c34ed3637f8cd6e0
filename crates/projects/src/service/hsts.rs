//! `Strict-Transport-Security` of hostnames.

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, ProjectId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Org, Projects, Result};
use crate::error::ProjectError;
use crate::hostname::normalize;
use crate::model::{Hostname, HostnameKind, HostnameState, Hsts, NewHsts};
use crate::repository::{HostnameRepository as _, ProjectRepository as _};

/// The smallest `maxAge` with which <https://hstspreload.org> accepts a domain: one year.
const MIN_PRELOAD_SECONDS: i32 = 31_536_000;

impl Projects {
    /// Sets `Strict-Transport-Security` of a hostname. Setting the same value is a no-op.
    ///
    /// # Errors
    /// Returns [`ProjectError::HostnameNotFound`], or [`ProjectError::Field`] if the directives contradict each other or
    /// the default hostname includes subdomains.
    pub async fn hsts_set(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        name: &str,
        new: NewHsts,
    ) -> Result<Hostname> {
        let hsts = Hsts::from(new);
        if hsts.preload && (!hsts.include_sub_domains || hsts.max_age < MIN_PRELOAD_SECONDS) {
            let message = format!("requires includeSubDomains and a maxAge of at least {MIN_PRELOAD_SECONDS}");
            return Err(InvalidField::new("preload", message).into());
        }
        self.hsts_change(actor, org, project, name, Some(hsts)).await
    }

    /// Removes `Strict-Transport-Security` of a hostname. Browsers that have seen the header remember it until its time
    /// is over. Without the header this is a no-op.
    ///
    /// # Errors
    /// Returns [`ProjectError::HostnameNotFound`].
    pub async fn hsts_remove(&self, actor: &Actor, org: &Org, project: ProjectId, name: &str) -> Result<Hostname> {
        self.hsts_change(actor, org, project, name, None).await
    }

    async fn hsts_change(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        name: &str,
        hsts: Option<Hsts>,
    ) -> Result<Hostname> {
        let name = normalize(name).ok_or(ProjectError::HostnameNotFound)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let before = tx.hostname_find(project, &name).await?.ok_or(ProjectError::HostnameNotFound)?;
                let before = before.with_verify_records(&self.site.fallback_origin);
                if before.hsts == hsts {
                    return Ok(Outcome::Unchanged(before));
                }
                if before.kind == HostnameKind::Default && hsts.is_some_and(|hsts| hsts.include_sub_domains) {
                    let message = "must be false: the default hostname has no subdomains";
                    return Err(InvalidField::new("includeSubDomains", message).into());
                }
                tx.hostname_set_hsts(project, &name, hsts).await?;
                if before.state == HostnameState::Active {
                    self.update_desired(tx, project).await?;
                }
                let (event, data) = match hsts {
                    Some(hsts) => ("hostname.hsts.set", json!({ "hostname": name, "from": before.hsts, "to": hsts })),
                    None => ("hostname.hsts.delete", json!({ "hostname": name, "from": before.hsts })),
                };
                let after = Hostname { hsts, ..before };
                Ok(Outcome::Changed(after, Event::in_org(event, org.id, project, data)))
            })
            .await
    }
}
