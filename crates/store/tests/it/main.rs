//! The store on a real Postgres.

mod outbox;
mod rotation;
mod sagas;
mod schema;
mod tls;
mod transactions;
