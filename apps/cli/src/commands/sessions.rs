//! `svc sessions`: the login sessions of the user.

use client::types::LoginSession;

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Sessions {
    /// List your login sessions, newest first
    List(PageArgs),
    /// End a login session
    End {
        /// ID of the session
        id: String,
    },
}

impl Sessions {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.me_sessions(&page.paging()).send().await?;
                svc.out.page(&page, ["ID", "", "CREATED", "LAST USED", "PROGRAM"], row)
            }
            Self::End { id } => {
                let ended = client.me_session_end(&id).send().await?;
                svc.out.empty_response(&ended, format!("ended {id}"))
            }
        }
    }
}

fn row(session: &LoginSession) -> [String; 5] {
    let LoginSession { id, current, created_at, last_used_at, user_agent } = session;
    let current = if *current { "current" } else { "" };
    let (last_used_at, user_agent) = (or_dash(last_used_at.as_deref()), or_dash(user_agent.as_deref()));
    [id.clone(), current.to_owned(), created_at.clone(), last_used_at, user_agent]
}
