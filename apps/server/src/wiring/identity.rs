//! Construction of identity, and its ports. Organizations and the code host implement the ports.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dns::{ZoneName, ZoneRepository as _};
use identity::{CodeHostFailure, CodeHostLogin, Identity, SignIn};
use kernel::{OrgId, ProjectId, Provider, UserId, ZoneId};
use orgs::{OrgRepository as _, Orgs};
use projects::ProjectRepository as _;
use providers::{CodeHost, CodeHostError};
use store::{Connection, Store};

use super::error::IntoStoreError as _;
use crate::config::{CODEHOST_TOKEN_URL, Config};
use crate::jobs::{Background, HOUR, Job, MINUTE};

pub(super) fn wire(
    config: &Config,
    store: &Store,
    orgs: &Orgs,
    background: &mut Background,
) -> anyhow::Result<Identity> {
    let port = Arc::new(OrgsPort(orgs.clone()));
    let mut identity = Identity::new(store.clone(), port.clone(), port).with_limits(config.abuse_limits);
    if let Some(login) = &config.code_host {
        let host = CodeHost::new(login.host.clone()).map_err(|error| CODEHOST_TOKEN_URL.malformed(error))?;
        let callback = format!("{}/v1/auth/codehost/callback", config.gateway.site.public_url);
        let redirects = login.redirects.clone();
        identity = identity.with_code_host(CodeHostLogin { host: Arc::new(CodeHostPort(host)), callback, redirects });
    }
    background.job(Job::every(MINUTE, "identity.purge_logins"), identity.clone(), async |identity| {
        identity.logins_purge().await
    });
    background.job(Job::every(HOUR, "identity.purge_sessions"), identity.clone(), async |identity| {
        identity.sessions_purge().await
    });
    Ok(identity)
}

struct OrgsPort(Orgs);

#[async_trait]
impl identity::PersonalOrgs for OrgsPort {
    async fn create(&self, tx: &mut Connection, user: UserId, preferred_slug: &str) -> store::Result<()> {
        self.0.create_personal(tx, user, preferred_slug).await.map(drop).map_err(|error| error.into_store_error())
    }
}

#[async_trait]
impl identity::RestrictionTargets for OrgsPort {
    async fn org(&self, tx: &mut Connection, user: UserId, slug: &str) -> store::Result<Option<OrgId>> {
        tx.org_find_for_member(user, slug).await
    }

    async fn project(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ProjectId>> {
        tx.project_find(org, name).await
    }

    async fn zone(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ZoneId>> {
        let Ok(name) = ZoneName::parse(name) else { return Ok(None) };
        Ok(tx.zone_find(org, &name).await?.map(|zone| zone.id))
    }
}

/// The timeout for both requests to the code host. It must be shorter than the timeout of the browser's request.
const CODE_HOST_TIMEOUT: Duration = Duration::from_secs(8);

struct CodeHostPort(CodeHost);

#[async_trait]
impl identity::CodeHost for CodeHostPort {
    fn authorize_url(&self, redirect_uri: &str, state: &str, challenge: &str) -> String {
        self.0.authorize_url(redirect_uri, state, challenge)
    }

    async fn identify(
        &self,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<(SignIn, String), CodeHostFailure> {
        let identified = tokio::time::timeout(CODE_HOST_TIMEOUT, self.0.identify(code, redirect_uri, verifier)).await;
        let identified = identified.map_err(|elapsed| CodeHostFailure::Unavailable(elapsed.into()))?;
        let identified = identified.map_err(|error| match error {
            // Other rejections concern the registration of the OAuth client, which the user cannot correct.
            CodeHostError::Refused(ref code)
                if ["bad_verification_code", "invalid_grant", "400"].contains(&code.as_str()) =>
            {
                CodeHostFailure::Refused(error.into())
            }
            error => CodeHostFailure::Unavailable(error.into()),
        });
        let providers::Person { subject, login, name, email, avatar_url } = identified?;
        Ok((SignIn { provider: Provider::Codehost, subject, name: Some(name), email, avatar_url }, login))
    }
}
