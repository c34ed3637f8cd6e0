//! The storage of organizations. Each file has a trait on [`store::Connection`] and its SQL.

mod invite;
mod invite_mail;
mod notification;
mod org;

use diesel::sql_types::{Text, Uuid};
use diesel_async::RunQueryDsl as _;
use kernel::UserId;
use store::{Connection, Prepared, Result};

pub use invite::*;
pub use invite_mail::*;
pub use notification::*;
pub use org::*;

/// Locks an activity of a user until the transaction ends. Takes an advisory lock, because this context has no row for
/// a user.
async fn lock_activity(tx: &mut Connection, activity: &str, by: UserId) -> Result<()> {
    let lock = diesel::sql_query("SELECT pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2::text, 0))");
    Prepared(lock.bind::<Text, _>(activity).bind::<Uuid, _>(by)).execute(tx).await?;
    Ok(())
}
