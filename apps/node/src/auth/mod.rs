//! App user auth: the sign-in of the users of a project, at `/__svc/auth/*` of its hosts (runtime.md, docs/auth.md).
//!
//! The node itself serves these paths, between the access gate and the project's code. `entry` dispatches requests,
//! `flow` holds the state of sign-ins in progress in the browser, and `provider` exchanges codes for profiles. `store`
//! contains the users and sessions in the project's own database.
//!
//! Worker code never sees the session cookie. Each of its requests carries a handle of the session, which only this
//! process can read, and `env.auth.users.current` sends the handle back.

mod callback;
pub mod config;
mod cookies;
mod entry;
mod flow;
mod login;
mod metrics;
mod page;
mod permits;
mod provider;
mod session;
mod store;
mod task;
mod user_id;
mod users;

pub use entry::AuthEntry;
pub use metrics::AuthMetrics;
pub use session::{HANDLE_HEADER, WorkerSession};
pub use store::{MAX_PAGE, Pools, StoreError, User, UserPage};
pub use task::keep_up;
pub use users::Users;
pub use {store::upkeep, user_id::parse_user_id};
