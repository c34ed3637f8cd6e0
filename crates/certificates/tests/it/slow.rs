//! Runs that take too long.

use std::time::Duration;

use certificates::AuthorityError;
use serde_json::json;

use crate::kit::Kit;

const STATE: &str = "SELECT state, failures, last_error FROM certificates.names";

/// Creates the name `a.example`, and an authority that does not respond to orders.
async fn start() -> Kit {
    let it = Kit::start(1).await;
    let authority = it.authorities.first().unwrap();
    authority.accept_accounts();
    authority.fail(AuthorityError::Refused("no".to_owned()));
    authority.stall(true);
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    it
}

#[tokio::test]
async fn run_that_takes_too_long_is_a_failed_order() {
    let it = start().await;
    let authority = &it.authorities[0];
    let timeout = async {
        authority.wait_for_order().await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(91)).await;
        tokio::time::resume();
    };
    let (runs, ()) = tokio::join!(it.certificates.run_due(), timeout);
    assert_eq!(runs.unwrap(), 1);
    let failed = json!({ "state": "failed", "failures": 1, "last_error": "the attempt took too long" });
    assert_eq!(it.db_rows(STATE).await, [failed]);
    authority.stall(false);
    assert_eq!(it.certificates.run_due().await.unwrap(), 0);
    it.advance(150);
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!(authority.orders(), ["a.example", "a.example"]);
}

#[tokio::test]
async fn run_whose_lease_has_ended_writes_nothing() {
    let it = start().await;
    let authority = &it.authorities[0];
    let another_server = async {
        authority.wait_for_order().await;
        it.advance(3721);
        assert_eq!(it.without_authorities().run_due().await.unwrap(), 1);
        // Otherwise, the first server claims the name again.
        it.db_execute("UPDATE certificates.names SET due_at = due_at + interval '1 day'").await;
        authority.stall(false);
    };
    let (runs, ()) = tokio::join!(it.certificates.run_due(), another_server);
    assert_eq!(runs.unwrap(), 1);
    let error = "the platform has no certificate authority";
    assert_eq!(it.db_rows(STATE).await, [json!({ "state": "pending", "failures": 0, "last_error": error })]);
    assert_eq!(authority.orders(), ["a.example"]);
}
