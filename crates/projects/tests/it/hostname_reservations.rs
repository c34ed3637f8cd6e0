//! How long a claim reserves a name, and how many hostnames a project may have.

use futures_util::future::join_all;
use kernel::ownership::TakeoverObstacle;
use kernel::{ApiError as _, Limits, Plan};
use projects::{HostnameLimit, ProjectDeletion, ProjectError};
use serde_json::json;

use crate::kit::{ACTIVE, DAY, Kit, NAME, ORIGIN, PENDING};

/// Returns whether a claim failed because another project has the name.
fn is_held<T>(outcome: &Result<T, ProjectError>) -> bool {
    matches!(outcome, Err(ProjectError::HostnameHeld { obstacle: TakeoverObstacle::NotPublished, .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_days_of_a_claim_cannot_be_restarted() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let (shop, blog) = (kit.project(&acme, "shop").await.id, kit.project(&acme, "blog").await.id);
    let other_project = kit.project(&other, "shop").await.id;
    let from = kit.now();
    let until = |seconds: i64| (from.plus_seconds(seconds).unix_millis() - kit.now().unix_millis()) / 1000;
    kit.claim(&acme, shop, NAME).await.unwrap();
    // Deleting the hostname or its project, and adding it again in the same organization, does not extend the time.
    kit.advance(3 * DAY);
    kit.projects.hostname_delete(&kit.actor, &acme, shop, NAME).await.unwrap();
    kit.claim(&acme, shop, NAME).await.unwrap();
    kit.advance(2 * DAY);
    let deletion = ProjectDeletion { confirm: "shop".to_owned() };
    kit.projects.delete(&kit.actor, &acme, shop, deletion).await.unwrap();
    kit.claim(&acme, blog, NAME).await.unwrap();
    kit.advance(until(7 * DAY - 1));
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!(kit.find_hostname(blog, NAME).await.unwrap().state, PENDING);
    assert!(is_held(&kit.claim(&other, other_project, NAME).await));
    // The next check is due after a minute.
    kit.advance(until(7 * DAY + 60));
    kit.audited().await;
    kit.projects.hostnames_check().await.unwrap();
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.system_audit_row("hostname.lapse", &acme, blog, data.clone())]);
    assert_eq!(kit.find_hostname(blog, NAME).await, None);

    // A later claim of the organization reserves nothing: the next project gets the name.
    let late = kit.claim(&acme, blog, NAME).await.unwrap();
    assert!(late.last_error.as_ref().unwrap().contains("another project can claim"), "{late:?}");
    assert_eq!((late.state, late.verify.len()), (PENDING, 2));
    assert_eq!(kit.find_hostname(blog, NAME).await.unwrap().last_error, late.last_error);
    kit.projects.hostnames_check().await.unwrap();
    let checked = kit.find_hostname(blog, NAME).await.unwrap();
    assert!(checked.last_error.unwrap().contains("another project can claim"));
    kit.audited().await;
    kit.claim(&other, other_project, NAME).await.unwrap();
    let expected = [
        kit.audit_row("hostname.add", &other, other_project, data.clone()),
        kit.system_audit_row("hostname.lapse", &acme, blog, data),
    ];
    assert_eq!(kit.audited().await, expected);
    assert_eq!(kit.find_hostname(blog, NAME).await, None);
    // The other organization has its own seven days.
    assert!(is_held(&kit.claim(&acme, blog, NAME).await));
    kit.advance(7 * DAY - 10);
    assert!(is_held(&kit.claim(&acme, blog, NAME).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_without_a_reservation_can_be_verified() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let shop = kit.project(&acme, "shop").await.id;
    let other_project = kit.project(&other, "shop").await.id;
    kit.claim(&acme, shop, NAME).await.unwrap();
    kit.advance(7 * DAY);
    let late = kit.claim(&acme, shop, NAME).await.unwrap();
    // The same project gets its claim again, and the job checks it for seven days.
    kit.advance(7 * DAY - 60);
    assert_eq!(kit.claim(&acme, shop, NAME).await.unwrap(), late);
    kit.records.cname(NAME, ORIGIN);
    kit.projects.hostnames_check().await.unwrap();
    let active = kit.find_hostname(shop, NAME).await.unwrap();
    assert_eq!((active.state, active.last_error), (ACTIVE, None));
    assert!(is_held(&kit.claim(&other, other_project, NAME).await));

    // A proof starts a new period.
    kit.projects.hostname_delete(&kit.actor, &acme, shop, NAME).await.unwrap();
    assert_eq!(kit.claim(&acme, shop, NAME).await.unwrap().last_error, None);
    kit.advance(7 * DAY - 1);
    assert!(is_held(&kit.claim(&other, other_project, NAME).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_hostname_is_reserved_for_seven_days_in_total() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let shop = kit.project_with_hostname(&acme).await;
    let other_project = kit.project(&other, "shop").await.id;
    kit.records.clear();
    for _ in 0..2 {
        kit.advance(7 * DAY);
        kit.projects.hostnames_check().await.unwrap();
    }
    assert_eq!(kit.find_hostname(shop, NAME).await.unwrap().state, PENDING);
    kit.advance(4 * DAY);
    kit.projects.hostname_delete(&kit.actor, &acme, shop, NAME).await.unwrap();
    kit.claim(&acme, shop, NAME).await.unwrap();
    kit.advance(3 * DAY - 1);
    assert!(is_held(&kit.claim(&other, other_project, NAME).await));
    kit.advance(1);
    assert_eq!(kit.claim(&other, other_project, NAME).await.unwrap().state, PENDING);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_claims_are_forgotten_after_90_days() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.claim(&org, project, NAME).await.unwrap();
    let remembered = "SELECT count(*) FROM projects.first_claims";
    for (days, expected) in [(90, 1), (1, 0)] {
        kit.advance(days * DAY);
        kit.projects.first_claims_purge().await.unwrap();
        assert_eq!(kit.db_number(remembered).await, expected);
    }
    assert_eq!(kit.claim(&org, project, NAME).await.unwrap().last_error, None);
}

/// Limits of two pending and four custom hostnames per project.
fn limits() -> Limits {
    let mut limits = Limits::default();
    assert_eq!((limits.free.custom_hostnames, limits.free.pending_hostnames), (100, 20));
    assert_eq!((limits.pro.custom_hostnames, limits.pro.pending_hostnames), (100, 20));
    (limits.free.custom_hostnames, limits.free.pending_hostnames) = (4, 2);
    limits
}

fn assert_limited<T: std::fmt::Debug>(outcome: Result<T, ProjectError>, of: HostnameLimit, limit: u32) {
    let error = outcome.unwrap_err();
    assert!(matches!(&error, ProjectError::HostnameLimit { of: it, .. } if *it == of), "{error:?}");
    assert_eq!(error.code(), &ProjectError::HOSTNAME_LIMIT);
    let details = json!({ "limit": limit, "count": limit, "plan": "free", "of": of.as_str() });
    assert_eq!(error.details(), Some(details));
    assert!(error.to_string().contains(&format!("allows {limit} ")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostnames_of_a_project_are_limited() {
    let kit = Kit::with(limits()).await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    let third = kit.project(&other, "shop").await.id;
    let claims = [0, 1].map(|n| format!("p{n}.example.org"));
    for name in &claims {
        kit.claim(&org, shop, name).await.unwrap();
    }
    kit.audited().await;
    assert_limited(kit.claim(&org, shop, NAME).await, HostnameLimit::Pending, 2);
    assert_eq!(kit.audited().await, []);
    // A repeated claim does not count again, and each project has its own limits.
    kit.claim(&org, shop, &claims[0]).await.unwrap();
    kit.claim(&org, blog, NAME).await.unwrap();
    // Verified hostnames do not count as pending.
    for name in &claims {
        kit.records.cname(name, ORIGIN);
        kit.verify(shop, name).await.unwrap();
    }
    for n in 2..4 {
        kit.claim(&org, shop, &format!("p{n}.example.org")).await.unwrap();
    }
    assert_limited(kit.claim(&org, shop, "p4.example.org").await, HostnameLimit::Custom, 4);
    // The limit also applies to names that are active immediately, and to takeovers.
    kit.records.zone("example.net");
    assert_limited(kit.claim(&org, shop, "www.example.net").await, HostnameLimit::Custom, 4);
    kit.claim(&other, third, "taken.example.org").await.unwrap();
    let Err(ProjectError::HostnameHeld { record, .. }) = kit.claim(&org, shop, "taken.example.org").await else {
        panic!("not held")
    };
    kit.records.txt(&record.name, &[record.value]);
    assert_limited(kit.claim(&org, shop, "taken.example.org").await, HostnameLimit::Custom, 4);
    assert!(kit.find_hostname(third, "taken.example.org").await.is_some());
    // A takeover never becomes a pending claim, so only the limit of custom hostnames applies to it.
    kit.projects.hostname_delete(&kit.actor, &org, shop, &claims[0]).await.unwrap();
    assert_eq!(kit.claim(&org, shop, "taken.example.org").await.unwrap().state, ACTIVE);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_stay_within_the_limits() {
    let kit = Kit::with(limits()).await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let names: Vec<String> = (0..12).map(|n| format!("p{n}.example.org")).collect();
    let outcomes = join_all(names.iter().map(|name| kit.claim(&org, project, name))).await;
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 2, "{outcomes:?}");
    for outcome in outcomes.into_iter().filter(Result::is_err) {
        assert_limited(outcome, HostnameLimit::Pending, 2);
    }
}
