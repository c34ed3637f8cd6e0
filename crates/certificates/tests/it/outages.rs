//! Authorities that fail.

use std::time::Duration;

use certificates::{AuthorityError, Notice};
use serde_json::json;
use store::Timeouts;
use testkit::TestStore;

use crate::kit::Kit;

#[tokio::test]
async fn unavailable_authority_is_followed_by_the_next_one_and_by_backoff() {
    let it = Kit::start(2).await;
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!((it.authorities[0].calls(), it.authorities[1].calls()), (1, 1));
    assert_eq!(it.names().await, ["a.example failed"]);
    let error = it.db_rows("SELECT last_error FROM certificates.names").await[0]["last_error"].clone();
    assert_eq!(error, "the certificate authority is unavailable: no response");
    assert_eq!(it.certificates.run_due().await.unwrap(), 0);

    // A day of outage: the delays double up to six hours.
    let mut attempts = 1;
    for _ in 0..24 * 60 {
        it.advance(60);
        attempts += it.certificates.run_due().await.unwrap();
    }
    assert!((9..=13).contains(&attempts), "{attempts}");
    assert_eq!(it.db_number("SELECT failures FROM certificates.names").await, i64::try_from(attempts).unwrap());
}

/// The test does not advance the clock, so the lease of the run does not end.
#[tokio::test]
async fn run_without_postgres_is_repeated_before_its_lease_ends() {
    let it = Kit::on(TestStore::with_timeouts(32, Timeouts::default()).await, 1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    authority.stall(true);
    let lock = "BEGIN; LOCK TABLE certificates.names IN SHARE MODE; SELECT pg_sleep(3); COMMIT";
    let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND granted \
        AND relation = 'certificates.names'::regclass";
    let respond = async {
        while it.db_number(locks).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        authority.stall(false);
    };
    let interrupt = async {
        authority.wait_for_order().await;
        tokio::join!(it.db_execute(lock), respond);
    };
    // The claims of further names wait for the lock too.
    let _ = tokio::join!(it.certificates.run_due(), interrupt);
    assert_eq!(authority.orders().len(), 1);
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!(authority.orders().len(), 1);
    assert_eq!(it.names().await, ["a.example failed"]);
}

#[tokio::test]
async fn rate_limit_pauses_only_its_authority() {
    let it = Kit::start(2).await;
    let message = "too many orders".to_owned();
    it.authorities[0].fail(AuthorityError::RateLimited { message, retry_after: Some(7200) });
    for name in ["a.example", "b.example"] {
        let project = it.project(name.trim_end_matches(".example"), &[name]).await;
        it.sync(project).await;
        it.certificates.run_due().await.unwrap();
        it.advance(61);
    }
    assert_eq!((it.authorities[0].calls(), it.authorities[1].calls()), (1, 2));
    it.advance(3600);
    assert_eq!(it.certificates.run_due().await.unwrap(), 2);
    // Only one name asks for an account.
    assert_eq!((it.authorities[0].calls(), it.authorities[1].calls()), (0, 1));
    it.advance(3700);
    it.certificates.run_due().await.unwrap();
    assert!(it.authorities[0].calls() > 0);
}

#[tokio::test]
async fn limited_order_delays_only_its_name_until_three_owners_are_limited() {
    let it = Kit::start(1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    authority.fail(AuthorityError::RateLimited { message: "too many orders".to_owned(), retry_after: Some(7200) });
    for host in ["a.example", "b.example"] {
        let project = it.project(host.trim_end_matches(".example"), &[host]).await;
        it.sync(project).await;
        it.certificates.run_due().await.unwrap();
        assert_eq!(authority.orders(), [host]);
    }
    it.advance(7000);
    assert_eq!(it.certificates.run_due().await.unwrap(), 0);
    it.advance(500);
    assert_eq!(it.certificates.run_due().await.unwrap(), 2);
    assert_eq!(authority.orders().len(), 2);
    for slug in ["c", "d", "e"] {
        let org = it.another_org(slug).await;
        let project = it.project_of(org, slug, &[&format!("{slug}.example")]).await;
        it.sync(project).await;
        it.certificates.run_due().await.unwrap();
    }
    assert_eq!(authority.orders(), ["c.example", "d.example"]);
    assert_eq!(it.db_number("SELECT failures FROM certificates.names WHERE name = 'e.example'").await, 0);
    // The pause is shorter than the delay of the limited names. After it, the delay of other names is up to an hour.
    it.advance(599);
    assert_eq!(it.certificates.run_due().await.unwrap(), 0);
    it.advance(3602);
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!(authority.orders(), ["e.example"]);
}

#[tokio::test]
async fn limited_free_organizations_of_a_creator_pause_nothing() {
    let it = Kit::start(1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    authority.fail(AuthorityError::RateLimited { message: "too many orders".to_owned(), retry_after: Some(7200) });
    let mut orgs = Vec::new();
    for slug in ["a", "b", "c"] {
        orgs.push((slug, it.another_org(slug).await));
    }
    it.db_execute(
        "INSERT INTO identity.users (id, provider, subject, created_at) \
             VALUES (gen_random_uuid(), 'dev', 'ada', now()); \
         UPDATE orgs.orgs SET created_by = (SELECT id FROM identity.users)",
    )
    .await;
    orgs.push(("d", it.another_org("d").await));
    for (slug, org) in orgs {
        let project = it.project_of(org, slug, &[&format!("{slug}.example")]).await;
        it.sync(project).await;
        it.certificates.run_due().await.unwrap();
    }
    assert_eq!(authority.orders(), ["a.example", "b.example", "c.example", "d.example"]);
    assert_eq!(it.db_number("SELECT count(*) FROM certificates.pauses").await, 0);
}

#[tokio::test]
async fn limited_orders_do_not_shorten_a_pause() {
    let it = Kit::start(1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    authority.fail(AuthorityError::RateLimited { message: "too many orders".to_owned(), retry_after: Some(7200) });
    authority.stall(true);
    for slug in ["a", "b", "c"] {
        let org = it.another_org(slug).await;
        let project = it.project_of(org, slug, &[&format!("{slug}.example")]).await;
        it.sync(project).await;
    }
    let until = it.now().plus_seconds(7200);
    let pause = format!("INSERT INTO certificates.pauses VALUES ('https://ca0.example/directory', '{until}')");
    let pause_meanwhile = async {
        let mut orders = Vec::new();
        while orders.len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            orders.extend(authority.orders());
        }
        it.db_execute(&pause).await;
        authority.stall(false);
    };
    let (runs, ()) = tokio::join!(it.certificates.run_due(), pause_meanwhile);
    assert_eq!(runs.unwrap(), 3);
    let unchanged = format!("SELECT count(*) FROM certificates.pauses WHERE until = '{until}'");
    assert_eq!(it.db_number(&unchanged).await, 1);
}

#[tokio::test]
async fn orders_of_an_organization_are_limited() {
    let it = Kit::start(1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    authority.fail(AuthorityError::Refused("no".to_owned()));
    let hosts: Vec<String> = (0..40).map(|number| format!("h{number}.example")).collect();
    let project = it.project("many", &hosts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    it.sync(project).await;
    let other = it.another_org("other").await;
    let small = it.project_of(other, "small", &["small.example"]).await;
    it.advance(1);
    it.sync(small).await;
    assert_eq!(it.certificates.run_due().await.unwrap(), 41);
    let orders = authority.orders();
    assert_eq!(orders.len(), 21);
    // The slots of one organization do not delay another one until its backlog is done.
    assert!(orders.iter().take(8).any(|name| name == "small.example"), "{orders:?}");
    let waiting =
        "SELECT count(*) FROM certificates.names WHERE failures = 0 AND last_error LIKE '%limit of certificate%'";
    assert_eq!(it.db_number(waiting).await, 20);

    // The names that wait cause no lookups.
    *it.ports.caa_lookups.lock().unwrap() = 0;
    it.db_execute(&format!("UPDATE certificates.names SET due_at = '{}' WHERE failures = 0", it.now())).await;
    assert_eq!(it.certificates.run_due().await.unwrap(), 20);
    assert_eq!((authority.orders().len(), *it.ports.caa_lookups.lock().unwrap()), (0, 0));
}

#[tokio::test]
async fn orders_of_the_free_organizations_of_a_creator_are_limited_together() {
    let it = Kit::start(1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    authority.fail(AuthorityError::Refused("no".to_owned()));
    for slug in ["one", "two", "pro"] {
        let org = it.another_org(slug).await;
        let hosts: Vec<String> = (0..15).map(|number| format!("{slug}{number}.example")).collect();
        let project = it.project_of(org, slug, &hosts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        it.sync(project).await;
    }
    it.db_execute(
        "INSERT INTO identity.users (id, provider, subject, created_at) \
             VALUES (gen_random_uuid(), 'dev', 'ada', now()); \
         UPDATE orgs.orgs SET created_by = (SELECT id FROM identity.users), \
             plan = CASE slug WHEN 'pro' THEN 'pro' ELSE 'free' END",
    )
    .await;
    assert_eq!(it.certificates.run_due().await.unwrap(), 45);
    let (pro, free): (Vec<String>, Vec<String>) =
        authority.orders().into_iter().partition(|name| name.starts_with("pro"));
    assert_eq!((pro.len(), free.len()), (15, 20));
    let error = "the free organizations of the same creator have reached their limit of certificate orders per hour";
    let waiting = format!("SELECT count(*) FROM certificates.names WHERE failures = 0 AND last_error = '{error}'");
    assert_eq!(it.db_number(&waiting).await, 10);
}

#[tokio::test]
async fn hosted_name_without_an_address_and_a_delegation_has_the_backoff() {
    let it = Kit::start(1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    authority.fail(AuthorityError::Refused("no".to_owned()));
    *it.ports.zone.lock().unwrap() = Some("example".to_owned());
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    // The second delay is longer than the first.
    for runs in [1, 1, 0] {
        assert_eq!(it.certificates.run_due().await.unwrap(), runs);
        it.advance(145);
    }
    let row = it.db_rows("SELECT state, failures, last_error FROM certificates.names").await.remove(0);
    let error = "a.example has no address, and the zone example is not delegated to this platform";
    assert_eq!(row, json!({ "state": "failed", "failures": 2, "last_error": error }));
    assert_eq!(authority.orders(), [""; 0]);
    *it.ports.has_addresses.lock().unwrap() = true;
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!(authority.orders(), ["a.example"]);
}

#[tokio::test]
async fn rejected_account_is_replaced_and_errors_are_truncated() {
    let it = Kit::start(1).await;
    let authority = &it.authorities[0];
    authority.accept_accounts();
    authority.fail(AuthorityError::Refused("x".repeat(1000)));
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    it.certificates.run_due().await.unwrap();
    assert_eq!(it.db_number("SELECT length(last_error) FROM certificates.names").await, 400);
    it.advance(200);
    authority.fail(AuthorityError::Account("deactivated".to_owned()));
    it.certificates.run_due().await.unwrap();
    // The first and the repeated order, each with another account.
    assert_eq!((authority.calls(), authority.orders().len()), (2, 3));
    assert_eq!(it.db_number("SELECT count(*) FROM certificates.accounts").await, 0);
}

#[tokio::test]
async fn all_authorities_limit_the_rate() {
    let it = Kit::start(1).await;
    let message = "too many orders".to_owned();
    it.authorities[0].fail(AuthorityError::RateLimited { message, retry_after: Some(36_000) });
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    it.certificates.run_due().await.unwrap();
    let error = it.db_rows("SELECT last_error FROM certificates.names").await[0]["last_error"].clone();
    assert_eq!(error, "the certificate authority limits the rate of orders: too many orders");
    it.advance(35_000);
    assert_eq!(it.certificates.run_due().await.unwrap(), 0);
    it.advance(1200);
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!(it.authorities[0].calls(), 2);
}

#[tokio::test]
async fn organization_is_notified_once_a_week_before_the_expiry() {
    let it = Kit::start(1).await;
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    let expiry = it.now().plus_seconds(10 * 24 * 3600);
    it.db_execute(&format!(
        "INSERT INTO certificates.certificates (id, name, directory, chain, key_id, sealed, not_before, not_after, \
             created_at) \
         SELECT gen_random_uuid(), 'a.example', 'https://ca0.example/directory', '', 'x', '', n, '{expiry}', n \
             FROM (SELECT '{}'::timestamptz AS n) AS begin; \
         UPDATE certificates.names SET state = 'active'",
        it.now()
    ))
    .await;
    it.certificates.run_due().await.unwrap();
    assert_eq!(it.names().await, ["a.example active"]);
    assert!(it.ports.notices.lock().unwrap().is_empty());
    for _ in 0..9 {
        it.advance(24 * 3600);
        it.certificates.run_due().await.unwrap();
    }
    let notices = it.ports.notices.lock().unwrap().clone();
    let [Notice::RenewalFailed { project, hostname, reason, expires_at }] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!((project.name.as_str(), hostname.as_str(), *expires_at), ("site", "a.example", expiry));
    assert!(reason.contains("unavailable"), "{reason}");
    assert_eq!(it.names().await, ["a.example active"]);
    it.advance(2 * 24 * 3600);
    it.certificates.run_due().await.unwrap();
    assert_eq!(it.names().await, ["a.example failed"]);
    assert_eq!(it.ports.notices.lock().unwrap().len(), 1);
}
