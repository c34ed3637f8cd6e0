//! `svc audit`: the audit log of an organization, and that of the account.

use client::types::{MeAuditQuery, OrgsAuditQuery};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Args)]
pub struct Audit {
    /// List the events of your account, such as sign-ins, instead of those of an organization
    #[arg(long)]
    account: bool,
    /// Filter by event, such as project.create
    #[arg(long)]
    event: Option<String>,
    /// Filter by the ID of the user who caused the event
    #[arg(long, value_name = "USER")]
    actor: Option<String>,
    /// List only events at or after this time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// List only events before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

impl Audit {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let paging = self.page.paging();
        let Self { account, event, actor, since, until, .. } = self;
        let (limit, cursor) = (paging.limit, paging.cursor);
        let page = if account {
            let query = MeAuditQuery { event, actor, since, until, limit, cursor };
            svc.client()?.me_audit(&query).send().await?
        } else {
            let query = OrgsAuditQuery { event, actor, since, until, limit, cursor };
            svc.client()?.orgs_audit(&svc.org()?, &query).send().await?
        };
        svc.out.page(&page, ["TIME", "EVENT", "TARGET", "ACTOR", "CREDENTIAL"], |it| {
            let actor = it.actor_name.as_deref().or(it.actor.as_deref());
            let (time, event, target) = (it.created_at.clone(), it.event.clone(), it.target.clone());
            [time, event, target, or_dash(actor), or_dash(it.credential.as_deref())]
        })
    }
}
