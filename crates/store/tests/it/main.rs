//! The store on a real Postgres.

mod outbox;
mod schema;
mod tls;
mod transactions;
