//! `svc audit`: the audit log of an organization.

use client::types::OrgsAuditQuery;

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Args)]
pub struct Audit {
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
        let Self { event, actor, since, until, .. } = self;
        let query = OrgsAuditQuery { event, actor, since, until, limit: paging.limit, cursor: paging.cursor };
        let page = svc.client()?.orgs_audit(&svc.org()?, &query).send().await?;
        svc.out.page(&page, ["TIME", "EVENT", "TARGET", "ACTOR", "CREDENTIAL"], |it| {
            let actor = it.actor_name.as_deref().or(it.actor.as_deref());
            let (time, event, target) = (it.created_at.clone(), it.event.clone(), it.target.clone());
            [time, event, target, or_dash(actor), or_dash(it.credential.as_deref())]
        })
    }
}
