//! What an organization is notified of, and how often.

use futures_util::future::join_all;
use kernel::audit::{Actor, Event};
use kernel::{Limits, NotificationId, OrgId, Page, Paging, Role, UserId};
use orgs::{NewNotification, Notification, NotificationKind, OrgError, Orgs, Site};
use serde_json::json;
use store::{Connection, Outcome};

use crate::kit::{Kit, by, site, told};

const DAY: i64 = 24 * 3600;
const MAILS: &str = "SELECT count(*) FROM store.outbox WHERE topic = 'orgs.notification'";

fn new(kind: NotificationKind, project: Option<&str>) -> NewNotification {
    let (title, message) = ("A title".to_owned(), "What to do about it.".to_owned());
    NewNotification { kind, project: project.map(str::to_owned), title, message }
}

async fn acme(kit: &Kit) -> (OrgId, UserId) {
    let ada = kit.db_user("ada").await;
    (kit.org(ada, "acme").await.id, ada)
}

async fn listed(kit: &Kit, org: OrgId) -> Vec<Notification> {
    kit.orgs.notifications(org, &Paging::default()).await.unwrap().items
}

/// Whether one more is listed, and told to the log, after this one was raised.
async fn is_raised(kit: &Kit, org: OrgId, new: NewNotification) -> bool {
    let before = listed(kit, org).await.len();
    kit.orgs.notify(&Actor::operator("test"), org, new).await.unwrap();
    let raised = listed(kit, org).await.len() - before;
    assert_eq!(kit.audited().await.len(), raised);
    raised == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_listed_and_told_to_the_log() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let (now, actor) = (kit.now(), Actor::operator("test"));
    let raised = NewNotification {
        kind: NotificationKind::BackupFailed,
        project: Some("shop".to_owned()),
        title: "The backup of shop failed".to_owned(),
        message: "The node could not reach the store.".to_owned(),
    };
    kit.orgs.notify(&actor, org, raised.clone()).await.unwrap();
    let [shown] = listed(&kit, org).await.try_into().unwrap();
    let NewNotification { kind, project, title, message } = raised;
    let expected = Notification { id: shown.id, kind, project, title, message, created_at: now, sent_at: None };
    assert_eq!(shown, expected);
    let data = json!({ "kind": "backup.failed", "project": "shop" });
    assert_eq!(kit.audited().await, [told("notification.raise", &actor, org, shown.id, data)]);
    let wire = serde_json::to_value(&shown).unwrap();
    assert_eq!((&wire["kind"], &wire["sentAt"]), (&json!("backup.failed"), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_the_contract_can_be_raised() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    for kind in NotificationKind::ALL {
        assert!(is_raised(&kit, org, new(*kind, None)).await, "{kind}");
    }
    let kinds = listed(&kit, org).await.into_iter().map(|shown| shown.kind);
    assert!(kinds.eq(NotificationKind::ALL.iter().rev().copied()));
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_listed_once_each_and_newest_first() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    for n in 0..25 {
        let project = format!("project-{n}");
        assert!(is_raised(&kit, org, new(NotificationKind::LimitStorage, Some(&project))).await);
        assert!(is_raised(&kit, other, new(NotificationKind::LimitStorage, Some(&project))).await);
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
async fn nobody_is_told_the_same_twice_within_a_day() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let failed = |project| new(NotificationKind::BackupFailed, project);
    let start = kit.now();
    assert!(is_raised(&kit, org, failed(Some("shop"))).await);
    // In other words, or by another way: it is the same.
    let reworded = NewNotification { title: "Again".to_owned(), ..failed(Some("shop")) };
    assert!(!is_raised(&kit, org, reworded).await);
    assert!(!is_raised(&kit, org, failed(Some("shop"))).await);
    // About something else, of another kind, or for somebody else: it is not.
    assert!(is_raised(&kit, org, failed(Some("blog"))).await);
    assert!(is_raised(&kit, org, failed(None)).await);
    assert!(!is_raised(&kit, org, failed(None)).await);
    assert!(is_raised(&kit, org, new(NotificationKind::BackupStale, Some("shop"))).await);
    assert!(is_raised(&kit, other, failed(Some("shop"))).await);
    assert_eq!(kit.db_number(MAILS).await, 5);

    let until = async |end: i64| {
        let passed = (kit.now().unix_millis() - start.unix_millis()) / 1000;
        kit.advance(end - passed);
    };
    until(DAY - 1).await;
    assert!(!is_raised(&kit, org, failed(Some("shop"))).await);
    until(DAY + 1).await;
    assert!(is_raised(&kit, org, failed(Some("shop"))).await);
    // Whose day begins anew.
    until(2 * DAY).await;
    assert!(!is_raised(&kit, org, failed(Some("shop"))).await);
    assert!(is_raised(&kit, org, failed(Some("blog"))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_who_raise_the_same_at_once_one_does() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let actor = Actor::operator("test");
    for kind in NotificationKind::ALL {
        let raises = (0..20).map(|_| kit.orgs.notify(&actor, org, new(*kind, Some("shop"))));
        let outcomes = join_all(raises).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(kit.audited().await.len(), 1, "{kind}");
    }
    let kinds = NotificationKind::ALL.len();
    assert_eq!((listed(&kit, org).await.len(), kit.db_number(MAILS).await), (kinds, i64::try_from(kinds).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_is_queued_for_each_admin_who_has_an_address() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    kit.joined(org, "bob", Role::Admin).await;
    kit.joined(org, "eve", Role::Member).await;
    kit.joined(org, "zoe", Role::Viewer).await;
    // Without an address.
    kit.db_join(org, &kit.db_users("user", 2).await, Role::Admin).await;
    let outsider = kit.db_user("max").await;
    kit.org(outsider, "other").await;
    assert!(is_raised(&kit, org, new(NotificationKind::PaymentFailed, None)).await);
    let id = listed(&kit, org).await[0].id;
    let queued = "SELECT topic, key, count(*) AS mails FROM store.outbox GROUP BY topic, key";
    let expected = json!({ "topic": "orgs.notification", "key": id.to_string(), "mails": 2 });
    assert_eq!(kit.database.rows(queued).await, [expected]);

    let silent = Orgs::new(kit.store.clone(), Limits::default(), Site { sends_mail: false, ..site() });
    silent.notify(&Actor::operator("test"), org, new(NotificationKind::DomainExpiring, None)).await.unwrap();
    assert_eq!((listed(&kit, org).await.len(), kit.db_number(MAILS).await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_raised_in_anothers_transaction_shares_its_fate() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let raise = async |tx: &mut Connection| {
        kit.orgs.raise(tx, org, new(NotificationKind::RestoreCompleted, Some("shop"))).await
    };
    let actor = by(ada);
    let failed = kit.store.transaction(&actor, async |tx| {
        raise(tx).await?;
        Err::<Outcome<()>, _>(OrgError::MemberNotFound)
    });
    assert!(matches!(failed.await, Err(OrgError::MemberNotFound)));
    assert_eq!((listed(&kit, org).await, kit.db_number(MAILS).await), (vec![], 0));

    // However often: whoever raises it so knows that it is news.
    for count in 1..=2 {
        let restored = kit.store.transaction(&actor, async |tx| {
            let id = raise(tx).await?;
            let (target, data) = ("shop".to_owned(), json!({}));
            Ok::<_, OrgError>(Outcome::Changed(id, Event { name: "database.restore", org: Some(org), target, data }))
        });
        let id = restored.await.unwrap();
        // The one row of the log is that of what it tells of.
        assert_eq!(kit.audited().await, [told("database.restore", &actor, org, "shop", json!({}))]);
        let shown = listed(&kit, org).await;
        assert_eq!((shown.len(), shown[0].id, kit.db_number(MAILS).await), (count, id, i64::try_from(count).unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_raised_for_an_organization_that_there_is_not() {
    let kit = Kit::start().await;
    let nowhere = kit.store.world().id();
    let raised = new(NotificationKind::LimitProjects, None);
    let refused = kit.orgs.notify(&Actor::operator("test"), nowhere, raised).await;
    assert!(matches!(refused, Err(OrgError::OrgNotFound)), "{refused:?}");
    assert_eq!((listed(&kit, nowhere).await, kit.audited().await), (vec![], vec![]));
}
