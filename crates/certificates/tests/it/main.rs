//! Certificates on real Postgres, with authorities that fail. The tests with a certificate authority that issues are in
//! `apps/server/tests/api/certificates`.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod kit;
mod names;
mod outages;
mod slow;
