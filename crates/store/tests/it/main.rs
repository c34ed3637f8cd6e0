//! The store on a real Postgres.

mod clock_check;
mod outbox;
mod rate_limits;
mod rotation;
mod sagas;
mod schema;
mod tls;
mod transactions;
