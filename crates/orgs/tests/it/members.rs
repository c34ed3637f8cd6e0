//! Members and their roles, and the audit events of changes.

use kernel::{ApiError as _, Paging, Provider, Role};
use orgs::{Member, NewMember, OrgError, OrgRepository as _, RoleChange};
use serde_json::json;

use crate::kit::{Kit, audit_row, new_member, session_actor};

#[tokio::test(flavor = "multi_thread")]
async fn signed_in_user_is_added_once() {
    let kit = Kit::start().await;
    let (ada, bob) = (kit.db_user("ada").await, kit.db_user("bob").await);
    let (org, actor) = (kit.org(ada, "acme").await.id, session_actor(ada));
    let now = kit.now();
    let added = kit.orgs.member_add(&actor, org, new_member("bob", Role::Viewer)).await.unwrap();
    let expected = Member {
        user_id: bob,
        provider: Provider::Dev,
        subject: "bob".to_owned(),
        name: Some("BOB".to_owned()),
        avatar_url: Some("https://pictures.example/bob".to_owned()),
        role: Role::Viewer,
        joined_at: now,
    };
    assert_eq!(added, expected);
    assert_eq!(kit.audited().await, [audit_row("member.add", &actor, org, bob, json!({ "role": "viewer" }))]);

    let again = kit.orgs.member_add(&actor, org, new_member("bob", Role::Admin)).await.unwrap_err();
    assert_eq!(again.code(), &OrgError::ALREADY_MEMBER);
    let elsewhere = NewMember { provider: Provider::Codehost, ..new_member("bob", Role::Admin) };
    for unknown in [elsewhere, new_member("eve", Role::Admin)] {
        let unknown = kit.orgs.member_add(&actor, org, unknown).await.unwrap_err();
        assert_eq!(unknown.code(), &OrgError::USER_NOT_FOUND);
    }
    assert_eq!(kit.audited().await, []);
    let found = kit.connection().await.member_find(org, bob).await.unwrap();
    assert_eq!(found, Some(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn setting_the_same_role_is_a_no_op() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let (org, actor) = (kit.org(ada, "acme").await.id, session_actor(ada));
    let bob = kit.joined(org, "bob", Role::Viewer).await;
    for (from, to) in [("viewer", Role::Admin), ("admin", Role::Member)] {
        let change = RoleChange { role: to };
        let member = kit.orgs.member_set_role(&actor, org, bob, change).await.unwrap();
        assert_eq!((member.user_id, member.role), (bob, to));
        let data = json!({ "from": from, "to": to, "invitesRevoked": 0 });
        assert_eq!(kit.audited().await, [audit_row("member.role", &actor, org, bob, data)]);
    }
    // The last admin can be made admin again.
    for (user, role) in [(bob, Role::Member), (ada, Role::Admin)] {
        let member = kit.orgs.member_set_role(&actor, org, user, RoleChange { role }).await.unwrap();
        assert_eq!(member.role, role);
    }
    let non_member = kit.db_user("eve").await;
    let role = Role::Viewer;
    let unknown = kit.orgs.member_set_role(&actor, org, non_member, RoleChange { role }).await;
    assert!(matches!(unknown, Err(OrgError::MemberNotFound)));
    assert_eq!(kit.audited().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_remove_members_and_members_remove_themselves() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let bob = kit.joined(org, "bob", Role::Member).await;
    let eve = kit.joined(org, "eve", Role::Viewer).await;
    for role in [Role::Viewer, Role::Member] {
        let refused = kit.orgs.member_remove(&session_actor(bob), role, org, eve).await.unwrap_err();
        assert_eq!(refused.code(), &kernel::Code::FORBIDDEN);
    }
    assert_eq!(kit.audited().await, []);
    kit.orgs.member_remove(&session_actor(eve), Role::Viewer, org, eve).await.unwrap();
    let left =
        audit_row("member.leave", &session_actor(eve), org, eve, json!({ "role": "viewer", "invitesRevoked": 0 }));
    assert_eq!(kit.audited().await, [left]);
    kit.orgs.member_remove(&session_actor(ada), Role::Admin, org, bob).await.unwrap();
    let removed =
        audit_row("member.remove", &session_actor(ada), org, bob, json!({ "role": "member", "invitesRevoked": 0 }));
    assert_eq!(kit.audited().await, [removed]);
    for gone in [bob, eve] {
        let again = kit.orgs.member_remove(&session_actor(ada), Role::Admin, org, gone).await;
        assert!(matches!(again, Err(OrgError::MemberNotFound)));
    }
    assert_eq!(kit.audited().await, []);
    let left = kit.orgs.members(org, &Paging::default()).await.unwrap().items;
    assert_eq!(left.iter().map(|member| member.user_id).collect::<Vec<_>>(), [ada]);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_admin_cannot_be_removed_or_demoted() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let bob = kit.joined(org, "bob", Role::Member).await;
    let actor = session_actor(ada);
    let demote = |role| kit.orgs.member_set_role(&actor, org, ada, RoleChange { role });
    for refused in [
        demote(Role::Member).await.map(drop),
        demote(Role::Viewer).await.map(drop),
        kit.orgs.member_remove(&session_actor(ada), Role::Admin, org, ada).await,
        kit.orgs.member_remove(&session_actor(bob), Role::Admin, org, ada).await,
    ] {
        assert_eq!(refused.unwrap_err().code(), &OrgError::LAST_ADMIN);
    }
    assert_eq!(kit.audited().await, []);
    // An admin of another organization does not count.
    let other = kit.org(bob, "other").await.id;
    assert_ne!(other, org);
    assert_eq!(demote(Role::Viewer).await.unwrap_err().code(), &OrgError::LAST_ADMIN);
    let promoted = RoleChange { role: Role::Admin };
    kit.orgs.member_set_role(&session_actor(ada), org, bob, promoted).await.unwrap();
    demote(Role::Viewer).await.unwrap();
    assert_eq!(kit.audited().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_has_no_address() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let (org, actor) = (kit.org(ada, "acme").await.id, session_actor(ada));
    let bob = kit.joined(org, "bob", Role::Viewer).await;
    let promoted = RoleChange { role: Role::Admin };
    kit.orgs.member_set_role(&actor, org, bob, promoted).await.unwrap();
    kit.orgs.member_remove(&actor, Role::Admin, org, bob).await.unwrap();
    let with_address = "SELECT count(*) FROM store.audit a WHERE a::text LIKE '%@%'";
    assert_eq!(kit.db_number(with_address).await, 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM store.audit").await, 4);
    let known = "SELECT count(*) FROM identity.users WHERE email LIKE '%@example.org'";
    assert_eq!(kit.db_number(known).await, 2);
}
