//! The audit log of an organization.

use kernel::audit::{Actor, Credential};
use kernel::{ApiError as _, AuditId, Kind, OrgId, Paging, Role, Time, TokenId, UserId};
use orgs::{AuditEvent, AuditFilter, OrgChange, RoleChange};
use serde_json::json;

use crate::kit::{Kit, audit_row, new_member, session_actor};

/// Returns the events of all pages of this size.
async fn all(kit: &Kit, org: OrgId, filter: &AuditFilter, limit: u16) -> Vec<AuditEvent> {
    let (mut paging, mut seen) = (Paging::<AuditId> { limit, after: None }, Vec::<AuditEvent>::new());
    loop {
        let page = kit.orgs.audit(org, filter, &paging).await.unwrap();
        seen.extend(page.items);
        assert!(seen.is_sorted_by(|a, b| a.id > b.id), "duplicate event, or out of order");
        let Some(cursor) = page.next_cursor else { return seen };
        paging = Paging::after(limit, &cursor).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_rename_writes_no_event() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let (org, actor) = (kit.org(ada, "acme").await, session_actor(ada));
    let change = || OrgChange { name: "Acme & Sons".parse().unwrap() };
    let renamed = kit.orgs.rename(&actor, Role::Admin, org.id, change()).await.unwrap();
    assert_eq!(renamed, orgs::Org { name: "Acme & Sons".to_owned(), ..org.clone() });
    let data = json!({ "name": "Acme & Sons" });
    assert_eq!(kit.audited().await, [audit_row("org.rename", &actor, org.id, org.id, data)]);

    let again = kit.orgs.rename(&actor, Role::Admin, org.id, change()).await.unwrap();
    assert_eq!(again, renamed);
    let nowhere = kit.store.clock_rng().id();
    let failed = kit.orgs.rename(&actor, Role::Admin, nowhere, change()).await.unwrap_err();
    assert_eq!(failed.code().kind, Kind::Internal);
    assert_eq!(kit.audited().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_lists_the_events_of_one_organization_newest_first() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let founded = kit.now();
    let (org, other) = (kit.org(ada, "acme").await.id, kit.org(ada, "other").await.id);
    kit.joined(other, "eve", Role::Viewer).await;
    let bob = kit.db_user("bob").await;
    let added = kit.now();
    kit.orgs.member_add(&session_actor(ada), org, new_member("bob", Role::Admin)).await.unwrap();
    kit.audited().await;
    let demoted = kit.now();
    let role = Role::Member;
    kit.orgs.member_set_role(&session_actor(bob), org, ada, RoleChange { role }).await.unwrap();

    let log = all(&kit, org, &AuditFilter::default(), 10).await;
    let event = |at: usize, event: &str, (actor, name), target: String, data, created_at: Time| AuditEvent {
        id: log[at].id,
        event: event.to_owned(),
        actor: Some(actor),
        actor_name: Some(str::to_owned(name)),
        credential: Some(session_actor(actor).credential.to_string()),
        target,
        data,
        request_id: "req-1".to_owned(),
        created_at,
    };
    let expected = [
        event(
            0,
            "member.role",
            (bob, "bob"),
            ada.to_string(),
            json!({ "from": "admin", "to": "member", "invitesRevoked": 0 }),
            demoted,
        ),
        event(1, "member.add", (ada, "ada"), bob.to_string(), json!({ "role": "admin" }), added),
        event(2, "org.create", (ada, "ada"), org.to_string(), json!({ "slug": "acme", "name": "acme" }), founded),
    ];
    assert_eq!(log, expected);
    for (filter, shown) in [
        (AuditFilter { event: Some("member.add".to_owned()), ..AuditFilter::default() }, &[1][..]),
        (AuditFilter { event: Some("member".to_owned()), ..AuditFilter::default() }, &[]),
        (AuditFilter { actor: Some(ada), ..AuditFilter::default() }, &[1, 2]),
        // `since` is inclusive, `until` is exclusive.
        (AuditFilter { since: Some(added), ..AuditFilter::default() }, &[0, 1]),
        (AuditFilter { until: Some(added), ..AuditFilter::default() }, &[2]),
        (AuditFilter { since: Some(added), until: Some(demoted), ..AuditFilter::default() }, &[1]),
        (AuditFilter { actor: Some(bob), until: Some(demoted), ..AuditFilter::default() }, &[]),
    ] {
        let shown: Vec<AuditEvent> = shown.iter().map(|at| expected[*at].clone()).collect();
        assert_eq!(all(&kit, org, &filter, 10).await, shown, "{filter:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_names_the_actors() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let user = |credential| Actor { credential, ..session_actor(ada) };
    let token: TokenId = kit.store.clock_rng().id();
    let anonymous = Actor { user: None, ..user(Credential::None) };
    let actors = [
        session_actor(ada),
        user(Credential::Token(token)),
        // A commit of a saga.
        user(Credential::Service),
        Actor::operator("test"),
        Actor::service("test"),
        anonymous,
    ];
    for (n, actor) in actors.iter().enumerate() {
        kit.advance(1);
        let change = OrgChange { name: format!("Acme {n}").parse().unwrap() };
        kit.orgs.rename(actor, Role::Admin, org, change).await.unwrap();
    }
    let named = async || -> Vec<(Option<UserId>, Option<String>, Option<String>)> {
        let log = all(&kit, org, &AuditFilter::default(), 10).await;
        log.into_iter().rev().skip(1).map(|it| (it.actor, it.actor_name, it.credential)).collect()
    };
    let (name, session) = (|name: &str| Some(name.to_owned()), Some(session_actor(ada).credential.to_string()));
    let mut expected = vec![
        (Some(ada), name("ada"), session),
        (Some(ada), name("ada"), Some(token.to_string())),
        (Some(ada), name("ada"), None),
        (None, name("operator"), None),
        (None, name("system"), None),
        (None, None, None),
    ];
    assert_eq!(named().await, expected);

    // The events of deleted users remain.
    kit.database.run("DELETE FROM identity.users").await;
    expected.iter_mut().take(3).for_each(|(_, name, _)| *name = None);
    assert_eq!(named().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_pages_are_complete_with_any_filter() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let actor = session_actor(ada);
    for n in 0..30 {
        let change = OrgChange { name: format!("Acme {n}").parse().unwrap() };
        kit.orgs.rename(&actor, Role::Admin, org, change).await.unwrap();
        if n % 3 == 0 {
            kit.joined(org, &format!("user-{n}"), Role::Viewer).await;
        }
    }
    let renames = AuditFilter { event: Some("org.rename".to_owned()), ..AuditFilter::default() };
    let by_ada = AuditFilter { actor: Some(ada), ..AuditFilter::default() };
    for (filter, count) in [(AuditFilter::default(), 41), (renames, 30), (by_ada, 31)] {
        let whole = all(&kit, org, &filter, 200).await;
        assert_eq!(whole.len(), count);
        for limit in [1, 7, 30, 31] {
            assert!(all(&kit, org, &filter, limit).await == whole, "{filter:?} with {limit} on a page");
        }
    }
}
