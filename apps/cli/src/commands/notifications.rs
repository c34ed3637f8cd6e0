//! `svc notifications`: the notifications of an organization.

use client::types::Notification;

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

pub const HEAD: [&str; 4] = ["TIME", "KIND", "PROJECT", "TITLE"];

pub async fn list(svc: &Svc<'_>, page: &PageArgs) -> Result<(), CliError> {
    let page = svc.client()?.invites_notifications(&svc.org()?, &page.paging()).send().await?;
    svc.out.page(&page, HEAD, row)
}

pub fn row(notification: &Notification) -> [String; 4] {
    let Notification { created_at, kind, project, title, .. } = notification;
    [created_at.clone(), kind.to_string(), or_dash(project.as_deref()), title.clone()]
}
