//! `env.db` (spec/runtime.md, docs/workers.md), with a real Postgres.

mod hostile;
mod limits;
mod rig;
mod tls;
mod worker;
