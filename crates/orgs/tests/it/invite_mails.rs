//! The limits on invitation mails.

use std::sync::Arc;

use futures_util::future::join_all;
use kernel::{AbuseLimits, ApiError as _, Code, Limits, OrgId, Role, UserId};
use orgs::{InviteOutcome, InviteState, OrgError, Orgs, RoleChange};
use serde_json::json;

use crate::invites::{accept, acme, listed, revoke, state};
use crate::kit::{Kit, session_actor, site, token};
use crate::mails::{FakeMailer, deliver, invites};

const BOB: &str = "bob@example.com";
const TEN_MINUTES: i64 = 600;
const DAY: i64 = 24 * 3600;

/// Invites Bob, and returns the token of the response.
async fn invite(kit: &Kit, org: OrgId, by: UserId) -> String {
    token(&kit.invite(org, by, BOB, Role::Member).await.unwrap())
}

/// Delivers all due mails, and returns the tokens of all mails so far.
async fn mailed(kit: &Kit, mailer: &Arc<FakeMailer>) -> Vec<String> {
    deliver(kit, invites(kit, mailer)).await;
    let link = |mail: orgs::MailMessage| mail.action.unwrap().1.rsplit('/').next().unwrap().to_owned();
    mailer.sent().into_iter().map(link).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn resend_within_ten_minutes_keeps_the_sent_mail_and_its_link() {
    let kit = Kit::start().await;
    let ((org, ada), mailer) = (acme(&kit).await, Arc::new(FakeMailer::default()));
    let first = invite(&kit, org, ada).await;
    assert_eq!(mailed(&kit, &mailer).await, std::slice::from_ref(&first));
    let sent_at = listed(&kit, org).await[0].sent_at;
    kit.advance(TEN_MINUTES - 1);
    let mut newest = first.clone();
    for _ in 0..5 {
        let replaced = std::mem::replace(&mut newest, invite(&kit, org, ada).await);
        // The links of the mail and of the last response are valid.
        assert_eq!(state(&kit, &first).await, Some(InviteState::Pending));
        assert_eq!(state(&kit, &newest).await, Some(InviteState::Pending));
        assert_eq!(state(&kit, &replaced).await.is_some(), replaced == first);
    }
    assert_eq!(mailed(&kit, &mailer).await.len(), 1);
    assert!(sent_at.is_some() && listed(&kit, org).await[0].sent_at == sent_at);

    kit.advance(1);
    let last = invite(&kit, org, ada).await;
    assert_eq!(mailed(&kit, &mailer).await, [first.clone(), last.clone()]);
    for dead in [&first, &newest] {
        assert_eq!(state(&kit, dead).await, None);
    }
    // The invitation can be accepted once, so after one link was used, the other one is no longer valid.
    let other = invite(&kit, org, ada).await;
    let (bob, eve) = (kit.db_user("robert").await, kit.db_user("eve").await);
    accept(&kit, bob, &last).await.unwrap();
    assert!(matches!(accept(&kit, eve, &other).await, Err(OrgError::InviteUsed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn resend_replaces_a_mail_that_no_worker_has_claimed() {
    let kit = Kit::start().await;
    let ((org, ada), mailer) = (acme(&kit).await, Arc::new(FakeMailer::default()));
    let mut links = Vec::new();
    for _ in 0..3 {
        links.push(invite(&kit, org, ada).await);
        kit.advance(60);
    }
    assert_eq!(mailed(&kit, &mailer).await, [links[2].clone()]);
    assert_eq!((state(&kit, &links[0]).await, state(&kit, &links[1]).await), (None, None));
    // The interval begins when the mail was sent.
    kit.advance(TEN_MINUTES - 1);
    invite(&kit, org, ada).await;
    assert_eq!(mailed(&kit, &mailer).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_invitation_of_a_revoked_address_is_mailed_after_ten_minutes() {
    let kit = Kit::start().await;
    let ((org, ada), mailer) = (acme(&kit).await, Arc::new(FakeMailer::default()));
    let mut last = String::new();
    for _ in 0..4 {
        last = invite(&kit, org, ada).await;
        assert_eq!(mailed(&kit, &mailer).await.len(), 1);
        revoke(&kit, org, listed(&kit, org).await[0].id).await.unwrap();
    }
    assert_eq!(state(&kit, &last).await, Some(InviteState::Revoked));
    last = invite(&kit, org, ada).await;
    assert!(listed(&kit, org).await[0].sent_at.is_none());
    kit.advance(TEN_MINUTES - 1);
    assert_eq!(mailed(&kit, &mailer).await.len(), 1);
    kit.advance(1);
    // The withdrawn mails did not delay the last one further.
    assert_eq!(mailed(&kit, &mailer).await[1..], [last]);
    assert!(listed(&kit, org).await[0].sent_at.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn server_with_a_wrong_clock_deletes_only_the_withdrawn_mail_from_the_limits() {
    for ahead in [-3600, 3600] {
        let mut kit = Kit::start().await;
        let ((org, ada), mailer) = (acme(&kit).await, Arc::new(FakeMailer::default()));
        invite(&kit, org, ada).await;
        assert_eq!(mailed(&kit, &mailer).await.len(), 1);
        revoke(&kit, org, listed(&kit, org).await[0].id).await.unwrap();
        kit.advance(60);
        // Its mail waits for the rest of the ten minutes.
        invite(&kit, org, ada).await;
        kit.orgs = Orgs::new(kit.with_clock_ahead(ahead), Limits::default(), site());
        revoke(&kit, org, listed(&kit, org).await[0].id).await.unwrap();
        assert_eq!(kit.db_number("SELECT count(*) FROM orgs.invite_mails").await, 1, "{ahead}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_mails_an_address_once_in_ten_minutes_over_all_organizations() {
    let kit = Kit::start().await;
    let (ada, mailer) = (kit.db_user("ada").await, Arc::new(FakeMailer::default()));
    let mut orgs = Vec::new();
    for n in 0..5 {
        orgs.push(kit.org(ada, &format!("org-{n}")).await.id);
    }
    let concurrent = join_all(orgs.iter().map(|org| kit.invite(*org, ada, BOB, Role::Viewer))).await;
    assert!(concurrent.iter().all(|outcome| matches!(outcome, Ok(InviteOutcome::Created(_)))), "{concurrent:?}");
    for sent in 1..=5 {
        assert_eq!(mailed(&kit, &mailer).await.len(), sent);
        kit.advance(TEN_MINUTES);
    }
    // Another user and another organization are not affected.
    let eve = kit.db_user("eve").await;
    let other = kit.org(eve, "other").await.id;
    invite(&kit, other, eve).await;
    assert_eq!(mailed(&kit, &mailer).await.len(), 6);
}

/// Checks that an invitation fails with 429, the limit and about this `Retry-After`, and changes nothing.
async fn refuses(kit: &Kit, org: OrgId, by: UserId, limit: u32, retry_after: i64) {
    let before = kit.db_number("SELECT count(*) FROM orgs.invites").await;
    kit.audited().await;
    let error = kit.invite(org, by, "one-more@example.com", Role::Viewer).await.unwrap_err();
    assert_eq!((error.code(), error.details()), (&Code::RATE_LIMITED, Some(json!({ "limit": limit }))));
    assert!((retry_after - 30..=retry_after).contains(&error.retry_after().unwrap()), "{error}");
    assert_eq!((kit.db_number("SELECT count(*) FROM orgs.invites").await, kit.audited().await), (before, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_of_an_organization_are_limited_per_day() {
    let mut limits = Limits::default();
    limits.free.invites = 1000;
    let kit = Kit::with(limits).await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let eve = kit.joined(org, "eve", Role::Admin).await;
    let email = |n: usize| format!("user-{n}@example.com");
    kit.invite(org, ada, &email(0), Role::Viewer).await.unwrap();
    kit.advance(3600);
    for n in 1..90 {
        kit.invite(org, ada, &email(n), Role::Viewer).await.unwrap();
    }
    // Concurrent requests of two admins cannot exceed the limit.
    let emails: Vec<_> = (90..110).map(email).collect();
    let racing = emails.iter().zip([ada, eve].into_iter().cycle());
    let outcomes = join_all(racing.map(|(email, by)| kit.invite(org, by, email, Role::Viewer))).await;
    let (sent, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((sent.len(), refused.len()), (10, 10), "{refused:?}");
    refuses(&kit, org, ada, 100, DAY - 3600).await;
    // The limit does not apply to a resend that sends no additional mail, nor to another organization.
    assert!(matches!(kit.invite(org, ada, &email(5), Role::Viewer).await, Ok(InviteOutcome::Resent(_))));
    assert!(kit.invite(other, ada, "one-more@example.com", Role::Viewer).await.is_ok());
    // Revoking an invitation does not free a mail either.
    revoke(&kit, org, listed(&kit, org).await[0].id).await.unwrap();
    refuses(&kit, org, ada, 100, DAY - 3600).await;

    // The first mail is a day old.
    kit.advance(DAY - 3600);
    assert!(kit.invite(org, ada, &email(110), Role::Viewer).await.is_ok());
    refuses(&kit, org, eve, 100, 3600).await;
    kit.advance(3600);
    assert!(kit.invite(org, eve, &email(111), Role::Viewer).await.is_ok());
    // Older rows are purged.
    let rows = format!("SELECT count(*) FROM orgs.invite_mails WHERE org_id = '{}'", org.as_uuid());
    assert_eq!(kit.db_number(&rows).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_of_a_user_are_limited_over_all_organizations() {
    let mut kit = Kit::start().await;
    let limits = AbuseLimits { invite_mails_per_org: 5, invite_mails_per_user: 8, ..AbuseLimits::default() };
    kit.orgs = kit.orgs.clone().with_abuse_limits(limits);
    let ada = kit.db_user("ada").await;
    let mut orgs = Vec::new();
    for n in 0..3 {
        orgs.push(kit.org(ada, &format!("org-{n}")).await.id);
    }
    let emails: Vec<_> = (0..12).map(|n| format!("user-{n}@example.com")).collect();
    let racing = emails.iter().zip(orgs.iter().cycle());
    let outcomes = join_all(racing.map(|(email, org)| kit.invite(*org, ada, email, Role::Viewer))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 8);
    for org in &orgs {
        refuses(&kit, *org, ada, 8, DAY).await;
    }
    let eve = kit.joined(orgs[0], "eve", Role::Admin).await;
    kit.invite(orgs[0], eve, "one-more@example.com", Role::Viewer).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn demoted_admin_loses_invitations_whose_mailed_link_they_know() {
    let kit = Kit::start().await;
    let ((org, ada), mailer) = (acme(&kit).await, Arc::new(FakeMailer::default()));
    let eve = kit.joined(org, "eve", Role::Admin).await;
    let of_eve = invite(&kit, org, eve).await;
    mailed(&kit, &mailer).await;
    // Ada invites the same address, but the mail that Eve caused is the last one.
    let of_ada = invite(&kit, org, ada).await;
    assert_eq!(state(&kit, &of_eve).await, Some(InviteState::Pending));
    kit.orgs.member_set_role(&session_actor(ada), org, eve, RoleChange { role: Role::Member }).await.unwrap();
    for link in [&of_eve, &of_ada] {
        assert!(matches!(accept(&kit, eve, link).await, Err(OrgError::InviteRevoked)));
    }
}
