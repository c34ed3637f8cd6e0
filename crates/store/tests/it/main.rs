//! The store on a real Postgres.

mod outbox;
mod rate_limits;
mod rotation;
mod sagas;
mod schema;
mod tls;
mod transactions;
