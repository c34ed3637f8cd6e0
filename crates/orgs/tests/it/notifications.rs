//! Notifications of an organization, and their deduplication.

use std::sync::Arc;

use futures_util::future::join_all;
use kernel::audit::{Actor, Event};
use kernel::{Limits, NamedProject, NotificationId, OrgId, Page, Paging, Role, Time, UserId};
use orgs::{Charge, Notice, Notification, NotificationKind, OrgError, Orgs, Site};
use serde_json::json;
use store::outbox::DeliveryError;
use store::{Connection, Outcome};
use testkit::four_at_a_time;

use crate::kit::{Kit, audit_row, project, raise, session_actor, site};
use crate::mails::{FakeMailer, deliver, notifications};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const MAILS: &str = "SELECT count(*) FROM store.outbox WHERE topic = 'orgs.notification'";

/// Returns one notice of each kind, in the order of the kinds.
fn one_of_each_kind() -> Vec<Notice> {
    let (project, hostname) = (|| project("shop"), || "www.example.org".to_owned());
    let (at, reason) = (Time::UNIX_EPOCH, || "The store did not answer".to_owned());
    vec![
        Notice::ProjectLimit { limit: 3 },
        Notice::StorageLimit { project: project(), limit_bytes: 512 << 20 },
        Notice::EmailLimit { project: project(), per_hour: 100 },
        Notice::AiCreditLimit,
        Notice::BackupFailed { project: project(), reason: reason() },
        Notice::BackupStale { project: project(), since: Some(at) },
        Notice::RestoreCompleted { project: project(), epoch: 4, seq: 17 },
        Notice::RestoreFailed { project: project(), epoch: 4, seq: 17, reason: reason() },
        Notice::DatabaseDeleted { project: project() },
        Notice::DomainExpiring { domain: "example.org".to_owned(), expires_at: at },
        Notice::PaymentFailed { charge: Charge::Renewal { domain: "example.org".to_owned() } },
        Notice::DatabaseLimit { project: project(), limit_bytes: 512 << 20 },
        Notice::HostnameUnproved { project: project(), hostname: hostname(), until: at },
        Notice::HostnameTakenOver { project: project(), hostname: hostname() },
        Notice::CertificateFailed { project: project(), hostname: hostname(), reason: reason(), expires_at: at },
        Notice::ZonesTakenOver { zones: vec!["example.org".to_owned()], record: "_svc-verify.example.org".to_owned() },
    ]
}

fn backup_failed(name: &str) -> Notice {
    Notice::BackupFailed { project: project(name), reason: "The store did not answer".to_owned() }
}

async fn acme(kit: &Kit) -> (OrgId, UserId) {
    let ada = kit.db_user("ada").await;
    (kit.org(ada, "acme").await.id, ada)
}

async fn listed(kit: &Kit, org: OrgId) -> Vec<Notification> {
    kit.orgs.notifications(org, &Paging::default()).await.unwrap().items
}

/// Raises a notice. Returns whether it was raised and listed.
async fn is_raised(kit: &Kit, org: OrgId, notice: Notice) -> bool {
    let before = listed(kit, org).await.len();
    let raised = raise(&kit.orgs, kit, org, notice).await.unwrap().is_some();
    assert_eq!(listed(kit, org).await.len() - before, usize::from(raised));
    assert_eq!(kit.audited().await.len(), usize::from(raised));
    raised
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_is_listed_with_its_texts() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let now = kit.now();
    let id = raise(&kit.orgs, &kit, org, backup_failed("shop")).await.unwrap().unwrap();
    let [shown] = listed(&kit, org).await.try_into().unwrap();
    let expected = Notification {
        id,
        kind: NotificationKind::BackupFailed,
        project: Some("shop".to_owned()),
        title: "The backup of shop failed".to_owned(),
        message: "The store did not answer.".to_owned(),
        created_at: now,
        sent_at: None,
    };
    assert_eq!(shown, expected);
    let wire = serde_json::to_value(&shown).unwrap();
    assert_eq!((&wire["kind"], &wire["sentAt"]), (&json!("backup.failed"), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_can_be_raised() {
    // The kinds of the contract, and one for taken zones.
    const KINDS: &str = "limit.projects limit.storage limit.email limit.ai_credit backup.failed backup.stale \
        restore.completed restore.failed database.deleted domain.expiring payment.failed limit.database \
        hostname.unproved hostname.taken_over certificate.failed zone.taken_over";
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    for notice in one_of_each_kind() {
        assert!(is_raised(&kit, org, notice.clone()).await, "{notice:?}");
    }
    let mut listed = listed(&kit, org).await;
    listed.reverse();
    let kinds: Vec<&str> = listed.iter().map(|shown| shown.kind.as_str()).collect();
    assert_eq!(kinds, KINDS.split_whitespace().collect::<Vec<_>>());
    assert!(listed.iter().map(|shown| shown.kind).eq(NotificationKind::ALL.iter().copied()));
}

/// The causes are not operations, such as the reports of nodes.
#[tokio::test(flavor = "multi_thread")]
async fn audited_notification_has_an_event_of_the_system() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let raise_audited = async |notice: Notice| {
        let raise = async |tx: &mut Connection| kit.orgs.raise_audited(tx, org, notice).await;
        kit.store.transaction_unaudited(raise).await.unwrap();
    };
    let shop = project("shop");
    for (notice, kind, project) in [
        (Notice::EmailLimit { project: shop.clone(), per_hour: 100 }, "limit.email", Some(shop.id)),
        (Notice::ProjectLimit { limit: 3 }, "limit.projects", None),
    ] {
        kit.audited().await;
        raise_audited(notice).await;
        let id = listed(&kit, org).await[0].id;
        let data = json!({ "kind": kind, "project": project });
        let expected = audit_row("notification.raise", &Actor::service("orgs.raise"), org, id, data);
        assert_eq!(kit.audited().await, [expected]);
    }
    // A notification that is not raised again has no event.
    raise_audited(Notice::ProjectLimit { limit: 3 }).await;
    assert!(kit.audited().await.is_empty());
    assert_eq!(listed(&kit, org).await.len(), 2);
}

#[test]
fn texts_are_complete_and_name_their_fields() {
    // The notice of the project that takes a hostname over has the same kind as that of the project that loses it.
    let acquired = Notice::HostnameAcquired { project: project("shop"), hostname: "www.example.org".to_owned() };
    for notice in one_of_each_kind().into_iter().chain([acquired]) {
        let (title, message) = notice.text();
        let whole = format!("{title} {message}");
        assert!(title.chars().count() <= 60 && !title.ends_with('.'), "{title}");
        assert!(message.ends_with('.') && !whole.contains("  ") && !whole.contains(".."), "{whole}");
        let fields = format!("{notice:?}");
        for word in ["shop", "www.example.org", "example.org", "The store did not answer"] {
            assert!(!fields.contains(word) || whole.contains(word), "{word} is missing: {whole}");
        }
    }
    let (_, message) = Notice::StorageLimit { project: project("shop"), limit_bytes: 512 << 20 }.text();
    assert!(message.contains("512 MiB"), "{message}");
    let (hostname, reason) = ("www.example.org".to_owned(), "The store did not answer".to_owned());
    let (title, message) =
        Notice::CertificateFailed { project: project("shop"), hostname, reason, expires_at: Time::UNIX_EPOCH }.text();
    assert_eq!(title, "The certificate of www.example.org was not renewed");
    assert!(message.contains("from 1970-01-01T00:00:00.000Z on."), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_listed_newest_first() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    for n in 0..25 {
        let project = format!("project-{n}");
        assert!(is_raised(&kit, org, backup_failed(&project)).await);
        assert!(is_raised(&kit, other, backup_failed(&project)).await);
    }
    let expected: Vec<String> = (0..25).rev().map(|n| format!("project-{n}")).collect();
    for limit in [1, 6, 24, 25, 26] {
        let (mut paging, mut seen) = (Paging::<NotificationId> { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.orgs.notifications(org, &paging).await.unwrap();
            seen.extend(items.into_iter().map(|shown| shown.project.unwrap()));
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert_eq!(seen, expected, "with {limit} on a page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn same_notification_is_not_raised_again_within_its_interval() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let project_limit = |limit: u32| Notice::ProjectLimit { limit };
    let start = kit.now();
    assert!(is_raised(&kit, org, project_limit(3)).await);
    // A notice that differs only in a value counts as the same notification.
    assert!(!is_raised(&kit, org, project_limit(100)).await);
    assert!(!is_raised(&kit, org, project_limit(3)).await);
    // A notice of another kind or organization does not.
    assert!(is_raised(&kit, org, backup_failed("shop")).await);
    assert!(is_raised(&kit, other, project_limit(3)).await);
    assert_eq!(kit.db_number(MAILS).await, 3);

    let until = async |end: i64| {
        let passed = (kit.now().unix_millis() - start.unix_millis()) / 1000;
        kit.advance(end - passed);
    };
    until(DAY - 1).await;
    assert!(!is_raised(&kit, org, project_limit(3)).await);
    until(DAY + 1).await;
    assert!(is_raised(&kit, org, project_limit(3)).await);
    // Each notification starts a new interval.
    until(2 * DAY).await;
    assert!(!is_raised(&kit, org, project_limit(3)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_belong_to_a_project_and_not_to_its_name() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let email_limit = |project: &NamedProject| Notice::EmailLimit { project: project.clone(), per_hour: 50 };
    let (old, other) = (project("shop"), project("blog"));
    assert!(is_raised(&kit, org, email_limit(&old)).await);
    // The project gets another name, and another project gets its name.
    let renamed = NamedProject { name: "store".to_owned(), ..old };
    assert!(is_raised(&kit, org, email_limit(&renamed)).await);
    let successor = NamedProject { name: "shop".to_owned(), ..other };
    assert_eq!(kit.orgs.notifications_of(org, successor.id, 5).await.unwrap(), []);
    assert!(is_raised(&kit, org, email_limit(&successor)).await);
    let mut of_each = kit.orgs.notifications_of(org, successor.id, 5).await.unwrap();
    of_each.extend(kit.orgs.notifications_of(org, renamed.id, 5).await.unwrap());
    assert_eq!(of_each, listed(&kit, org).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_without_an_interval_are_always_raised() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    for notice in one_of_each_kind() {
        assert!(is_raised(&kit, org, notice).await);
    }
    let mut raised = Vec::new();
    for notice in one_of_each_kind() {
        if is_raised(&kit, org, notice).await {
            raised.push(listed(&kit, org).await[0].kind);
        }
    }
    let all = NotificationKind::ALL.iter().copied();
    assert_eq!(raised, all.filter(|kind| kind.as_str() != "limit.projects").collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_identical_notices_are_raised_once() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let notice = Notice::ProjectLimit { limit: 3 };
    let outcomes = four_at_a_time((0..20).map(|_| raise(&kit.orgs, &kit, org, notice.clone()))).await;
    let raised: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(raised.iter().flatten().count(), 1, "{raised:?}");
    assert_eq!(kit.audited().await.len(), 1);
    assert_eq!((listed(&kit, org).await.len(), kit.db_number(MAILS).await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_queued_for_each_admin_with_an_address() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    kit.joined(org, "bob", Role::Admin).await;
    kit.joined(org, "eve", Role::Member).await;
    kit.joined(org, "zoe", Role::Viewer).await;
    // Add admins without an address.
    kit.db_join(org, &kit.db_users("user", 2).await, Role::Admin).await;
    let outsider = kit.db_user("max").await;
    kit.org(outsider, "other").await;
    assert!(is_raised(&kit, org, Notice::PaymentFailed { charge: Charge::Plan }).await);
    let id = listed(&kit, org).await[0].id;
    let queued = "SELECT topic, key, count(*) AS mails FROM store.outbox GROUP BY topic, key";
    let expected = json!({ "topic": "orgs.notification", "key": id.to_string(), "mails": 2 });
    assert_eq!(kit.database.rows(queued).await, [expected]);

    let without_mail = Orgs::new(kit.store.clone(), Limits::default(), Site { sends_mail: false, ..site() });
    raise(&without_mail, &kit, org, Notice::AiCreditLimit).await.unwrap().unwrap();
    assert_eq!((listed(&kit, org).await.len(), kit.db_number(MAILS).await), (2, 2));
}

/// A user cannot flood the mailbox of another by adding them to new organizations.
#[tokio::test(flavor = "multi_thread")]
async fn mails_to_an_address_are_limited_over_all_organizations_of_a_creator() {
    let kit = Kit::start().await;
    let eve = kit.db_users("eve", 1).await[0];
    let victim = kit.db_user("ada").await;
    let mut orgs = Vec::new();
    for n in 0..10 {
        let org = kit.org(eve, &format!("trap-{n}")).await.id;
        kit.db_join(org, &[victim], Role::Admin).await;
        orgs.push(org);
    }
    let own = kit.org(victim, "own").await.id;
    let mailer = Arc::new(FakeMailer::default());
    let mails = async || {
        deliver(&kit, notifications(&kit, &mailer, 6)).await;
        mailer.sent().len()
    };
    let raised = join_all(orgs.iter().map(|org| raise(&kit.orgs, &kit, *org, Notice::ProjectLimit { limit: 3 }))).await;
    assert!(raised.into_iter().all(|raised| raised.unwrap().is_some()));
    // The notifications are listed, and three of them are mailed. A retry needs no further permit.
    mailer.fail_next(DeliveryError::Transient("451 try again".to_owned()));
    assert_eq!(mails().await, 3);
    kit.advance(20);
    assert_eq!((mails().await, kit.db_number(MAILS).await), (4, 0));
    let mut sent = 0;
    for org in &orgs {
        let notifications = listed(&kit, *org).await;
        assert_eq!(notifications.len(), 1);
        sent += notifications.iter().filter(|notification| notification.sent_at.is_some()).count();
    }
    assert_eq!(sent, 3);
    // The recipient's own organization has its own mails.
    raise(&kit.orgs, &kit, own, backup_failed("shop")).await.unwrap().unwrap();
    assert_eq!(mails().await, 5);
    kit.advance(HOUR);
    raise(&kit.orgs, &kit, orgs[0], backup_failed("shop")).await.unwrap().unwrap();
    assert_eq!(mails().await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn notice_rolls_back_with_the_transaction_of_its_cause() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let raise = async |tx: &mut Connection| {
        let notice = Notice::RestoreCompleted { project: project("shop"), epoch: 4, seq: 17 };
        kit.orgs.raise(tx, org, notice).await
    };
    let actor = session_actor(ada);
    let failed = kit.store.transaction(&actor, async |tx| {
        raise(tx).await?;
        Err::<Outcome<()>, _>(OrgError::MemberNotFound)
    });
    assert!(matches!(failed.await, Err(OrgError::MemberNotFound)));
    assert_eq!((listed(&kit, org).await, kit.db_number(MAILS).await), (vec![], 0));

    // Restores have no interval.
    for count in 1..=2 {
        let restored = kit.store.transaction(&actor, async |tx| {
            let id = raise(tx).await?.unwrap();
            let (target, data) = ("shop".to_owned(), json!({}));
            Ok::<_, OrgError>(Outcome::Changed(id, Event::in_org("database.restore", org, target, data)))
        });
        let id = restored.await.unwrap();
        // The only audit row is that of the restore.
        assert_eq!(kit.audited().await, [audit_row("database.restore", &actor, org, "shop", json!({}))]);
        let shown = listed(&kit, org).await;
        assert_eq!((shown.len(), shown[0].id, kit.db_number(MAILS).await), (count, id, i64::try_from(count).unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notice_for_an_unknown_organization_is_rejected() {
    let kit = Kit::start().await;
    let nowhere = kit.store.clock_rng().id();
    let refused = raise(&kit.orgs, &kit, nowhere, Notice::ProjectLimit { limit: 3 }).await;
    assert!(matches!(refused, Err(OrgError::OrgNotFound)), "{refused:?}");
    assert_eq!((listed(&kit, nowhere).await, kit.audited().await), (vec![], vec![]));
}
