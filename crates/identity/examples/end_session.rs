//! Ends a login session, for example of a lost laptop: `SVC_DATABASE_URL=… cargo run -p identity --example end_session
//! -- <user id> <session id>`. The audit event `session.start` contains both ids.

use std::error::Error;
use std::sync::Arc;

use identity::{Identity, PersonalOrgs, RestrictionTargets};
use kernel::audit::Actor;
use kernel::{ClockRng, OrgId, ProjectId, Secret, SessionId, UserId, ZoneId};
use store::{Config, Connection, Store};

/// The ports of sign-in and token restrictions. This example uses neither.
struct NoOrgs;

#[async_trait::async_trait]
impl PersonalOrgs for NoOrgs {
    async fn create(&self, _: &mut Connection, user: UserId, _: &str) -> store::Result<()> {
        Err(store::Error::inconsistent(format!("an organization for {user}")))
    }
}

#[async_trait::async_trait]
impl RestrictionTargets for NoOrgs {
    async fn org(&self, _: &mut Connection, _: UserId, _: &str) -> store::Result<Option<OrgId>> {
        Ok(None)
    }

    async fn project(&self, _: &mut Connection, _: OrgId, _: &str) -> store::Result<Option<ProjectId>> {
        Ok(None)
    }

    async fn zone(&self, _: &mut Connection, _: OrgId, _: &str) -> store::Result<Option<ZoneId>> {
        Ok(None)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "the example has one setting, and its error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let mut ids = std::env::args().skip(1);
    let user: UserId = ids.next().ok_or("missing argument: the user id")?.parse()?;
    let session: SessionId = ids.next().ok_or("missing argument: the session id")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "end_session"), ClockRng::system())?;

    let identity = Identity::new(store, Arc::new(NoOrgs), Arc::new(NoOrgs));
    identity.session_end(&Actor::operator("end_session"), user, session).await?;
    println!("{session} has ended");
    Ok(())
}
