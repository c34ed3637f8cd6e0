//! Custom hostnames over time: expired claims, lost proofs, and the background job that checks them.

use std::time::Duration;

use futures_util::future::join_all;
use kernel::{NamedProject, Plan};
use projects::{ClaimRepository as _, FailedVerification, Notice, ProjectDeletion, ProjectError};
use serde_json::json;
use store::BATCH_SIZE;

use crate::kit::{ACTIVE, DAY, Kit, NAME, ORIGIN, PENDING};

#[tokio::test(flavor = "multi_thread")]
async fn unverified_claim_expires() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&other, "blog").await.id);
    let from = kit.now();
    let claim = kit.claim(&org, shop, NAME).await.unwrap();
    let until = |seconds: i64| (from.plus_seconds(seconds).unix_millis() - kit.now().unix_millis()) / 1000;
    kit.advance(until(7 * DAY - 1));
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!(kit.find_hostname(shop, NAME).await.unwrap().state, PENDING);
    let refused = kit.claim(&other, blog, NAME).await;
    assert!(matches!(refused, Err(ProjectError::HostnameHeld { .. })), "{refused:?}");

    // An expired claim does not block the name, even before the job deletes it.
    kit.advance(until(7 * DAY));
    kit.audited().await;
    let second = kit.claim(&other, blog, NAME).await.unwrap();
    assert_ne!(second.verification_token, claim.verification_token);
    assert_eq!(kit.find_hostname(shop, NAME).await, None);
    let gone = kit.verify(shop, NAME).await;
    assert!(matches!(gone, Err(ProjectError::HostnameNotFound)), "{gone:?}");
    // The record of the first claim does not verify the second.
    kit.publish(&claim);
    assert_eq!(kit.verify(blog, NAME).await.unwrap().state, PENDING);

    // The job deletes the expired claim.
    kit.advance(7 * DAY);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.system_audit_row("hostname.lapse", &other, blog, data)]);
    assert_eq!(kit.find_hostname(blog, NAME).await, None);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 0);

    // A new claim has the same token, and a proof in the last moment counts.
    let third = kit.claim(&other, blog, NAME).await.unwrap();
    kit.advance(7 * DAY);
    let fourth = kit.claim(&other, blog, NAME).await.unwrap();
    assert!(fourth.created_at > third.created_at && fourth.verification_token == third.verification_token);
    kit.advance(7 * DAY);
    kit.publish(&fourth);
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!(kit.find_hostname(blog, NAME).await.unwrap().state, ACTIVE);
}

#[tokio::test(flavor = "multi_thread")]
async fn active_hostname_without_proof_is_detached_after_a_week() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project_with_hostname(&org).await;
    kit.records.clear();
    // Within the first day, the check is not due.
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 0);
    kit.advance(DAY);
    let lost = kit.now();
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.system_audit_row("hostname.unproved", &org, project, data.clone())]);
    let shop = NamedProject { id: project, name: "shop".to_owned() };
    let (hostname, until) = (NAME.to_owned(), lost.plus_seconds(7 * DAY));
    let raised = (org.id, Notice::HostnameUnproved { project: shop, hostname, until });
    assert_eq!(*kit.orgs.raised.lock().unwrap(), std::slice::from_ref(&raised));
    let hostname = kit.find_hostname(project, NAME).await.unwrap();
    assert_eq!((hostname.state, hostname.checks.len()), (ACTIVE, 3));
    assert!(hostname.last_error.unwrap().contains(ORIGIN));
    assert_eq!(kit.take_served_names().len(), 0);

    // During the week, the job and the API keep the hostname active, and send no second notification.
    for _ in 1..7 {
        kit.advance(DAY - 1);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.verify(project, NAME).await.unwrap().state, ACTIVE);
        assert_eq!(kit.audited().await, []);
    }
    assert_eq!(*kit.orgs.raised.lock().unwrap(), [raised]);
    assert_eq!(kit.take_served_names().len(), 0);

    // After a week, the hostname is detached.
    kit.advance(DAY);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    assert_eq!(kit.audited().await, [kit.system_audit_row("hostname.detach", &org, project, data.clone())]);
    assert_eq!(kit.take_served_names(), [["shop-acme.svc.example"]]);
    let hostname = kit.find_hostname(project, NAME).await.unwrap();
    assert_eq!((hostname.state, hostname.verify.len(), hostname.verified_at), (PENDING, 2, None));
    assert_eq!(kit.orgs.raised.lock().unwrap().len(), 1);

    // The pending claim can be verified by CNAME, because no other organization used the name.
    kit.records.cname(NAME, ORIGIN);
    kit.advance(60);
    kit.projects.hostnames_check().await.unwrap();
    let expected = json!({ "hostname": NAME, "proof": "cname" });
    assert_eq!(kit.audited().await, [kit.system_audit_row("hostname.verify", &org, project, expected)]);
    assert_eq!(kit.take_served_names(), [["shop-acme.svc.example", NAME]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_hostname_without_proof_expires() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project_with_hostname(&org).await;
    kit.records.clear();
    for (days, state) in [(1, Some(ACTIVE)), (7, Some(PENDING)), (6, Some(PENDING)), (1, None)] {
        kit.advance(days * DAY);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.find_hostname(project, NAME).await.map(|it| it.state), state);
    }
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.system_audit_row("hostname.lapse", &org, project, data)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn regained_proof_clears_the_error() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project_with_hostname(&org).await;
    let healthy = kit.find_hostname(project, NAME).await.unwrap();
    for times in 1..=2 {
        kit.records.clear();
        kit.advance(DAY);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.orgs.raised.lock().unwrap().len(), times);
        assert_ne!(kit.find_hostname(project, NAME).await.unwrap(), healthy);
        kit.audited().await;
        // The proof returns on the last day of the week.
        kit.advance(6 * DAY);
        kit.records.cname(NAME, ORIGIN);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.find_hostname(project, NAME).await.unwrap(), healthy);
        kit.advance(2 * DAY);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.find_hostname(project, NAME).await.unwrap(), healthy);
        assert_eq!((kit.audited().await, kit.take_served_names().len()), (vec![], 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_name_server_changes_nothing() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project_with_hostname(&org).await;
    kit.records.set_silent(true);
    for _ in 0..30 {
        kit.advance(DAY);
        kit.projects.hostnames_check().await.unwrap();
        let hostname = kit.verify(project, NAME).await.unwrap();
        assert_eq!((hostname.state, hostname.last_error), (ACTIVE, None));
    }
    assert_eq!((kit.audited().await, kit.orgs.raised.lock().unwrap().len()), (vec![], 0));

    // The same holds if the proof was missing before the lookups failed, and the week is over.
    kit.records.set_silent(false);
    kit.records.clear();
    kit.advance(DAY);
    kit.projects.hostnames_check().await.unwrap();
    kit.audited().await;
    kit.records.set_silent(true);
    kit.advance(30 * DAY);
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!((kit.find_hostname(project, NAME).await.unwrap().state, kit.audited().await), (ACTIVE, vec![]));
    // The job retries within the hour.
    kit.records.set_silent(false);
    kit.records.cname(NAME, ORIGIN);
    kit.advance(3600);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    let healthy = kit.find_hostname(project, NAME).await.unwrap();
    assert_eq!((healthy.state, healthy.last_error, healthy.checks), (ACTIVE, None, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn job_checks_only_due_hostnames() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let mut claims = Vec::new();
    for n in 0..6 {
        claims.push(kit.claim(&org, project, &format!("w{n}.example.org")).await.unwrap());
    }
    for claim in &claims[..3] {
        kit.publish(claim);
    }
    kit.audited().await;
    // All are due, and half of them have a proof.
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 6);
    let expected: Vec<_> = claims[..3]
        .iter()
        .map(|it| {
            kit.system_audit_row("hostname.verify", &org, project, json!({ "hostname": it.name, "proof": "txt" }))
        })
        .collect();
    let audited = kit.audited().await;
    assert!(audited.len() == 3 && expected.iter().all(|row| audited.contains(row)), "{audited:?}");
    for (n, claim) in claims.iter().enumerate() {
        let hostname = kit.find_hostname(project, &claim.name).await.unwrap();
        assert_eq!((hostname.state == ACTIVE, hostname.last_error.is_some()), (n < 3, n >= 3), "{hostname:?}");
    }

    // Pending hostnames are due again after a minute, active ones after a day.
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 0);
    kit.records.take_txt_lookups();
    kit.advance(60);
    assert_eq!((kit.projects.hostnames_check().await.unwrap(), kit.records.take_txt_lookups()), (3, 3));
    kit.advance(30);
    assert_eq!((kit.projects.hostnames_check().await.unwrap(), kit.records.take_txt_lookups()), (0, 0));
    kit.advance(DAY);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostnames_of_an_organization_within_a_domain_become_due() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&other, "blog").await.id);
    for name in ["example.org", NAME, "notexample.org", "www.example.org.example", "pending.example.org"] {
        kit.claim(&org, shop, name).await.unwrap();
    }
    kit.claim(&other, blog, "blog.example.org").await.unwrap();
    for name in ["example.org", NAME, "notexample.org", "www.example.org.example", "blog.example.org"] {
        kit.records.cname(name, ORIGIN);
    }
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 6);
    for (org, due) in [(org.id, 3), (other.id, 1)] {
        kit.projects.hostnames_set_due(org, "example.org").await.unwrap();
        assert_eq!(kit.projects.hostnames_check().await.unwrap(), due);
    }
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_hostnames_than_a_batch_become_due() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.claim(&org, project, NAME).await.unwrap();
    let copy = format!(
        "INSERT INTO projects.hostnames (name, project_id, kind, state, verification_token, created_at, next_check_at) \
         SELECT n || '.example.org', project_id, kind, state, verification_token, created_at, '{}' \
         FROM projects.hostnames, generate_series(1, 2 * {BATCH_SIZE}) n WHERE name = '{NAME}'",
        kit.now().plus_seconds(DAY)
    );
    kit.db_execute(&copy).await;
    kit.projects.hostnames_set_due(org.id, "example.org").await.unwrap();
    let not_due = format!("SELECT count(*) FROM projects.hostnames WHERE next_check_at > '{}'", kit.now());
    assert_eq!(kit.db_number(&not_due).await, 0);
}

/// The resolver has permits for 128 lookups. A check has two.
#[tokio::test(flavor = "multi_thread")]
async fn many_due_hostnames_do_not_exceed_the_permits_of_the_resolver() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.claim(&org, project, NAME).await.unwrap();
    let copy = format!(
        "INSERT INTO projects.hostnames (name, project_id, kind, state, verification_token, created_at, next_check_at, \
             claim_expires_at) \
         SELECT n || '.example.org', project_id, kind, state, verification_token, created_at, next_check_at, \
             claim_expires_at \
         FROM projects.hostnames, generate_series(1, 199) n WHERE name = '{NAME}'"
    );
    kit.db_execute(&copy).await;
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 200);
    assert_eq!(kit.records.take_txt_lookups(), 200);
    let most = kit.records.max_open_txt_lookups();
    assert!((2..64).contains(&most), "{most}");
}

/// Its zone may have been created after the verification began. The run that checks it does not check it twice:
/// otherwise, a run that is slower than the interval of checks would not end.
#[tokio::test(flavor = "multi_thread")]
async fn hostname_that_becomes_due_during_its_check_is_checked_in_the_next_run() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project_with_hostname(&org).await;
    for name in ["lost.example.org", "pending.example.org"] {
        kit.claim(&org, project, name).await.unwrap();
    }
    kit.records.cname("lost.example.org", ORIGIN);
    assert_eq!(kit.verify(project, "lost.example.org").await.unwrap().state, ACTIVE);
    kit.records.cname("lost.example.org", "elsewhere.example");
    kit.advance(DAY);
    let (guard, check) = kit.blocked_check().await;
    kit.advance(1);
    kit.projects.hostnames_set_due(org.id, "example.org").await.unwrap();
    drop(guard);
    assert_eq!(check.await.unwrap().unwrap(), 3);
    // The results of the first check are recorded, too.
    assert!(kit.find_hostname(project, "lost.example.org").await.unwrap().last_error.is_some());
    assert!(kit.find_hostname(project, "pending.example.org").await.unwrap().last_error.is_some());
    assert_eq!(kit.find_hostname(project, NAME).await.unwrap().last_error, None);
    for due in [3, 0] {
        assert_eq!(kit.projects.hostnames_check().await.unwrap(), due);
    }
}

/// Otherwise, statements that change several hostnames could deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn hostnames_are_locked_in_the_order_of_their_names() {
    use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    for name in ["b.example.org", "a.example.org"] {
        kit.claim(&org, project, name).await.unwrap();
    }
    let claim = async |name: &str| kit.connection().await.claim_find(project, name).await.unwrap().unwrap();
    let failures = [claim("b.example.org").await, claim("a.example.org").await].map(|claim| FailedVerification {
        name: claim.name,
        token: claim.token,
        error: None,
        checks: Vec::new(),
        previous_check_at: claim.next_check_at,
        next_check_at: kit.now().plus_seconds(DAY),
    });
    let connect = async || store::Connection::establish(&kit.database.url()).await.unwrap();
    let before = kit.now().plus_seconds(-DAY);
    for is_failure in [true, false] {
        let (mut first, mut second) = (connect().await, connect().await);
        first
            .batch_execute("BEGIN; SELECT FROM projects.hostnames WHERE name = 'a.example.org' FOR UPDATE")
            .await
            .unwrap();
        // A sequential scan reads b first.
        second.batch_execute("SET enable_indexscan = off; SET enable_bitmapscan = off").await.unwrap();
        let change = async {
            if is_failure {
                second.claims_record_failures(&failures).await.unwrap();
            } else {
                second.claims_set_due(org.id, "example.org", before, "").await.unwrap();
            }
        };
        let unlock = async {
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                           AND datname = current_database() AND position('FOR NO KEY UPDATE' IN query) > 0 \
                           AND pid <> pg_backend_pid()";
            while kit.db_number(waiting).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let other = "SELECT FROM projects.hostnames WHERE name = 'b.example.org' FOR UPDATE NOWAIT; COMMIT";
            first.batch_execute(other).await.unwrap();
        };
        futures_util::join!(change, unlock);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_checks_apply_each_result_once() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.deploy(&org, project, "page").await.unwrap();
    for n in 0..10 {
        let name = format!("w{n}.example.org");
        kit.claim(&org, project, &name).await.unwrap();
        kit.records.cname(&name, ORIGIN);
    }
    // The hostname is verified, then unverified, then detached, and its claim expires.
    for (event, days) in [("verify", 0), ("unproved", 1), ("detach", 7), ("lapse", 7)] {
        if event == "unproved" {
            kit.records.clear();
        }
        kit.advance(days * DAY);
        kit.audited().await;
        let verifies = join_all((0..10).map(async |n| {
            let name = format!("w{n}.example.org");
            let _ = kit.verify(project, &name).await;
        }));
        let checks = join_all((0..4).map(|_| kit.projects.hostnames_check()));
        let (_, checks) = futures_util::join!(verifies, checks);
        assert!(checks.iter().all(Result::is_ok), "{checks:?}");
        let mut audited: Vec<_> =
            kit.audited().await.into_iter().map(|row| (row.event, row.data["hostname"].clone())).collect();
        audited.sort_by_key(|(_, name)| name.to_string());
        let expected: Vec<_> =
            (0..10).map(|n| (format!("hostname.{event}"), json!(format!("w{n}.example.org")))).collect();
        assert_eq!(audited, expected);
    }
    assert_eq!(kit.orgs.raised.lock().unwrap().len(), 10);
    assert_eq!(kit.take_served_names().last().unwrap(), &["shop-acme.svc.example"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn outdated_failure_is_not_recorded_on_an_active_hostname() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let claim = kit.claim(&org, project, "b.example.org").await.unwrap();
    let (guard, check) = kit.blocked_check().await;
    kit.db_execute("UPDATE projects.hostnames SET state = 'active', verified_at = now() WHERE name = 'b.example.org'")
        .await;
    drop(guard);
    check.await.unwrap().unwrap();
    let hostname = kit.find_hostname(project, &claim.name).await.unwrap();
    assert_eq!((hostname.state, hostname.last_error, hostname.checks), (ACTIVE, None, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_verified_during_the_check_is_not_detached() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project_with_hostname(&org).await;
    kit.records.clear();
    kit.advance(DAY);
    kit.projects.hostnames_check().await.unwrap();
    kit.advance(7 * DAY);
    kit.audited().await;
    let (guard, check) = kit.blocked_check().await;
    kit.db_execute("UPDATE projects.hostnames SET unverified_since = NULL, last_error = NULL, checks = NULL").await;
    drop(guard);
    check.await.unwrap().unwrap();
    let hostname = kit.find_hostname(project, NAME).await.unwrap();
    assert_eq!((hostname.state, hostname.last_error, hostname.checks), (ACTIVE, None, vec![]));
    assert_eq!(kit.audited().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_deleted_during_the_check_does_not_stop_the_job() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    let gone = kit.claim(&org, shop, NAME).await.unwrap();
    let kept = kit.claim(&org, blog, "blog.example.org").await.unwrap();
    kit.publish(&gone);
    let (guard, check) = kit.blocked_check().await;
    let deletion = ProjectDeletion { confirm: "shop".to_owned() };
    kit.projects.delete(&kit.actor, &org, shop, deletion).await.unwrap();
    kit.audited().await;
    drop(guard);
    assert_eq!(check.await.unwrap().unwrap(), 2);
    assert_eq!(kit.audited().await, []);
    // The result of the other hostname is recorded.
    assert!(kit.find_hostname(blog, &kept.name).await.unwrap().last_error.is_some());
}

/// Postgres cannot store U+0000. The resolver of the platform replaces it, but the one of this test does not.
#[tokio::test(flavor = "multi_thread")]
async fn result_that_cannot_be_stored_does_not_block_the_others() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    for name in ["a.example.org", "b.example.org", "c.example.org"] {
        kit.claim(&org, project, name).await.unwrap();
    }
    kit.records.txt("_svc-verify.b.example.org", &["\0".to_owned()]);
    for _ in 0..2 {
        assert_eq!(kit.projects.hostnames_check().await.unwrap(), 3);
        for (name, checks) in [("a.example.org", 3), ("b.example.org", 0), ("c.example.org", 3)] {
            assert_eq!(kit.find_hostname(project, name).await.unwrap().checks.len(), checks, "{name}");
        }
        kit.advance(60);
    }
}
