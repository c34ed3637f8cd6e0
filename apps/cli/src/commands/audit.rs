//! What happened in an organization.

use client::types::OrgsAuditQuery;

use crate::failure::Failure;
use crate::options::Part;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Args)]
pub struct Audit {
    /// Only this event, such as project.create
    #[arg(long)]
    event: Option<String>,
    /// Only what this user did, by their id
    #[arg(long, value_name = "USER")]
    actor: Option<String>,
    /// Only what happened at this time or later
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what happened before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[command(flatten)]
    part: Part,
}

impl Audit {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let paging = self.part.paging();
        let Self { event, actor, since, until, .. } = self;
        let query = OrgsAuditQuery { event, actor, since, until, limit: paging.limit, cursor: paging.cursor };
        let page = svc.client()?.orgs_audit(&svc.org()?, &query).send().await?;
        svc.out.list(&page, ["TIME", "EVENT", "TARGET", "ACTOR", "CREDENTIAL"], |it| {
            let actor = it.actor_name.as_deref().or(it.actor.as_deref());
            let (time, event, target) = (it.created_at.clone(), it.event.clone(), it.target.clone());
            [time, event, target, or_dash(actor), or_dash(it.credential.as_deref())]
        })
    }
}
