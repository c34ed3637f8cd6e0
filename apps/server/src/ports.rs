//! What one context asks of another: the ports that the asking side owns, answered by the other's service.

use std::time::Duration;

use async_trait::async_trait;
use convergence::{ConvergenceError, Part, Removal, ReportReceiver};
use dns::{Dns, DnsError, DnsRepository as _, Link, ZoneName};
use identity::{CodeHostFailure, SignIn};
use kernel::audit::Actor;
use kernel::{AccessMode, OrgId, Plan, ProjectId, Provider, Role, Time, UserId, ZoneId};
use orgs::{NewNotification, NotificationKind, OrgError, OrgRepository as _, Orgs};
use projects::{DeploymentStatus, Linked, Live, LiveAccess, LookupFailure, ProjectRepository as _};
use protocol::{DeploymentReport, DeploymentState, Site, SiteAccess};
use providers::{CodeHost, CodeHostError, LookupError, Mail, MailError, Resolver, Smtp};
use store::Connection;
use store::outbox::Undelivered;

/// Organizations, as identity and projects ask for them.
pub(crate) struct OrgsPort(pub(crate) Orgs);

/// Convergence, as projects ask for it.
pub(crate) struct ConvergencePort {
    pub(crate) site: Part<Site>,
    pub(crate) removal: Removal,
}

/// What nobody who asks through a port can be refused for is our fault.
trait Fault {
    fn fault(self) -> store::Error;
}

macro_rules! faults {
    ($($error:ident),+) => { $(
        impl Fault for $error {
            fn fault(self) -> store::Error {
                match self {
                    Self::Store(error) => error,
                    refused => store::Error::inconsistent(refused),
                }
            }
        }
    )+ };
}

faults!(OrgError, ConvergenceError, DnsError);

#[async_trait]
impl identity::PersonalOrgs for OrgsPort {
    async fn create(&self, tx: &mut Connection, user: UserId, wish: &str) -> store::Result<()> {
        self.0.create_personal(tx, user, wish).await.map(drop).map_err(Fault::fault)
    }
}

#[async_trait]
impl identity::Places for OrgsPort {
    async fn org(&self, tx: &mut Connection, user: UserId, slug: &str) -> store::Result<Option<OrgId>> {
        tx.org_of_member(user, slug).await
    }

    async fn project(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ProjectId>> {
        tx.project_find(org, name).await
    }

    async fn zone(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ZoneId>> {
        let Ok(name) = ZoneName::parse(name) else { return Ok(None) };
        Ok(tx.zone_find(org, &name).await?.map(|zone| zone.id))
    }
}

#[async_trait]
impl projects::Organizations for OrgsPort {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        tx.org_lock(org).await
    }

    async fn role(&self, connection: &mut Connection, org: OrgId, user: UserId) -> store::Result<Option<Role>> {
        Ok(connection.member_find(org, user).await?.map(|member| member.role))
    }

    async fn hostname_unproved(
        &self,
        tx: &mut Connection,
        org: OrgId,
        project: &str,
        hostname: &str,
        until: Time,
    ) -> store::Result<()> {
        let notification = NewNotification {
            kind: NotificationKind::HostnameUnproved,
            project: Some(project.to_owned()),
            title: format!("{hostname} has no proof any more"),
            message: format!(
                "The records that proved that {hostname} is yours are gone. It is served until {until}; publish one of \
                 them again, or remove the hostname from the project {project}."
            ),
        };
        self.0.raise(tx, org, notification).await.map(drop).map_err(Fault::fault)
    }

    async fn limit_reached(&self, actor: &Actor, org: OrgId, limit: u32) -> store::Result<()> {
        let notification = NewNotification {
            kind: NotificationKind::LimitProjects,
            project: None,
            title: "The plan's projects are used up".to_owned(),
            message: format!(
                "A project was not created, because the plan allows {limit} of them. Delete one, or change the plan."
            ),
        };
        self.0.notify(actor, org, notification).await.map_err(Fault::fault)
    }
}

#[async_trait]
impl projects::Placements for ConvergencePort {
    async fn converge(&self, tx: &mut Connection, project: ProjectId, live: Live) -> store::Result<()> {
        self.site.write(tx, project, &site(live)).await.map_err(Fault::fault)
    }

    async fn remove(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.removal.remove(tx, project).await.map_err(Fault::fault)
    }
}

/// Receives the reports about deployments.
pub(crate) struct DeploymentsPort;

#[async_trait]
impl ReportReceiver<DeploymentReport> for DeploymentsPort {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: DeploymentReport) -> store::Result<()> {
        let DeploymentReport { version, state, message } = report;
        let status = match state {
            DeploymentState::Serving => DeploymentStatus::Serving,
            DeploymentState::Crashed => DeploymentStatus::Crashed,
            DeploymentState::Failed => DeploymentStatus::Failed,
        };
        tx.deployment_observed(project, version, status, message.as_deref()).await
    }
}

fn site(live: Live) -> Site {
    let Live { hostnames, bundle, size_bytes, version, access } = live;
    let LiveAccess { mode, password, bypass, version: access_version } = access;
    let mode = match mode {
        AccessMode::Public => protocol::AccessMode::Public,
        AccessMode::Org => protocol::AccessMode::Org,
        AccessMode::Password => protocol::AccessMode::Password,
    };
    let access = SiteAccess { mode, password, bypass: bypass.map(|hash| hash.hex()), version: access_version };
    Site { hostnames, bundle, size_bytes, version, access }
}

/// Zones, as projects ask for them.
pub(crate) struct ZonesPort(pub(crate) Dns);

#[async_trait]
impl projects::Zones for ZonesPort {
    async fn zone_of(&self, connection: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<String>> {
        self.0.zone_of(connection, org, name).await.map_err(Fault::fault)
    }

    async fn link(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Linked> {
        let problem = |problem| Linked { changed: false, problem: Some(problem) };
        Ok(match self.0.link(tx, org, name).await.map_err(Fault::fault)? {
            Link::NoZone => Linked::default(),
            Link::Linked { changed } => Linked { changed, problem: None },
            Link::Occupied { zone } => problem(format!(
                "The zone {zone} has other records at {name}, so nobody is led here by it. Delete them, and verify again."
            )),
            Link::Full { zone } => problem(format!("The zone {zone} holds as many rrsets as a zone may.")),
            Link::NoAddress { zone } => problem(format!(
                "{zone} is a zone's own name, which cannot be a CNAME. Publish A or AAAA records that lead here."
            )),
        })
    }

    async fn unlink(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()> {
        self.0.unlink(tx, org, name).await.map_err(Fault::fault)
    }
}

fn failure(error: LookupError) -> LookupFailure {
    LookupFailure { message: error.to_string(), temporary: error.is_temporary() }
}

/// The public DNS, as projects ask for it.
pub(crate) struct ResolverPort(pub(crate) Resolver);

#[async_trait]
impl projects::Resolver for ResolverPort {
    async fn txt(&self, name: &str, patience: Duration) -> Result<Vec<String>, LookupFailure> {
        self.0.txt(name, patience).await.map_err(failure)
    }

    async fn cname(&self, name: &str, patience: Duration) -> Result<Option<String>, LookupFailure> {
        self.0.cname(name, patience).await.map_err(failure)
    }
}

/// How long the code host's two answers may take together: the browser that waits is sent on while its request lives.
const IDENTIFY: Duration = Duration::from_secs(8);

/// The code host, as identity asks for it.
pub(crate) struct CodeHostPort(pub(crate) CodeHost);

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
        let said = tokio::time::timeout(IDENTIFY, self.0.identify(code, redirect_uri, verifier)).await;
        let said = said.map_err(|late| CodeHostFailure::Unavailable(late.into()))?.map_err(|error| match error {
            // What is wrong with our registration there is nothing that a user can mend.
            CodeHostError::Refused(ref word)
                if ["bad_verification_code", "invalid_grant", "400"].contains(&word.as_str()) =>
            {
                CodeHostFailure::Refused(error.into())
            }
            error => CodeHostFailure::Unavailable(error.into()),
        });
        let providers::Person { subject, login, name, email, avatar_url } = said?;
        Ok((SignIn { provider: Provider::Codehost, subject, name: Some(name), email, avatar_url }, login))
    }
}

/// The mail server, as organizations ask for it.
pub(crate) struct PostPort(pub(crate) Smtp);

#[async_trait]
impl orgs::Post for PostPort {
    async fn send(&self, letter: orgs::Letter) -> Result<(), Undelivered> {
        let orgs::Letter { id, to, date, subject, heading, paragraphs, action, footer } = letter;
        let action = action.map(|(label, url)| providers::Action::new(label, &url)).transpose();
        let action = action.map_err(|error| Undelivered::Never(error.to_string()))?;
        let letter = providers::Letter { subject, heading, paragraphs, action, footer };
        let sent = self.0.send(&Mail { to, message_id: id, date, letter }).await;
        sent.map_err(|error| match error {
            MailError::Later(cause) => Undelivered::Later(cause.to_string()),
            MailError::Never(cause) => Undelivered::Never(cause.to_string()),
        })
    }
}
