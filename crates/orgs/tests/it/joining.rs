//! What the holder of an invitation's link sees, and how one joins.

use kernel::{Code, Failure as _, Paging, Role, Token, TokenKind};
use orgs::{InviteCreated, InviteState, InviteView, Invited, OrgError};
use serde_json::json;

use crate::invites::{DAY, accept, acme, invited, listed, revoke, state};
use crate::kit::{Kit, by, token, told};

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_link_sees_where_it_stands_and_how_it_ended_for_thirty_days() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    kit.db_execute("UPDATE orgs.orgs SET name = 'Acme & Sons'").await;
    let (pending, pending_opens) = invited(&kit, org, ada, "bob@example.com").await;
    let view = InviteView {
        state: InviteState::Pending,
        org_name: "Acme & Sons".to_owned(),
        org_slug: "acme".parse().unwrap(),
        role: Role::Member,
        expires_at: pending.expires_at,
    };
    assert_eq!(kit.orgs.invite_preview(&pending_opens).await.unwrap(), view);
    let (_, used) = invited(&kit, org, ada, "eve@example.com").await;
    let (taken_back, revoked) = invited(&kit, org, ada, "zoe@example.com").await;
    // The last second of seven days.
    kit.advance(7 * DAY - 3);
    assert_eq!(state(&kit, &pending_opens).await, Some(InviteState::Expired));
    assert_eq!(state(&kit, &used).await, Some(InviteState::Pending));
    let eve = kit.db_user("eve").await;
    revoke(&kit, org, taken_back.id).await.unwrap();
    accept(&kit, eve, &used).await.unwrap();

    kit.advance(30 * DAY - 1);
    let states = async || [state(&kit, &pending_opens).await, state(&kit, &used).await, state(&kit, &revoked).await];
    assert_eq!(states().await, [Some(InviteState::Expired), Some(InviteState::Used), Some(InviteState::Revoked)]);
    let bob = kit.db_user("bob").await;
    for (opens, code) in [
        (&pending_opens, &OrgError::INVITE_EXPIRED),
        (&used, &OrgError::INVITE_USED),
        (&revoked, &OrgError::INVITE_REVOKED),
    ] {
        assert_eq!(accept(&kit, bob, opens).await.unwrap_err().code(), code);
    }
    kit.advance(1);
    // One that is still listed is not forgotten.
    assert_eq!(states().await, [Some(InviteState::Expired), None, None]);
    for opens in [&used, &revoked] {
        assert_eq!(accept(&kit, bob, opens).await.unwrap_err().code(), &Code::NOT_FOUND);
    }
    // The rows go with the next invitation.
    kit.advance(1);
    invited(&kit, org, ada, "new@example.com").await;
    assert_eq!(kit.db_number("SELECT count(*) FROM orgs.invites").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_link_of_ours_opens_nothing() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (_, opens) = invited(&kit, org, ada, "bob@example.com").await;
    let world = kit.store.world();
    let (other, session) = (Token::mint(TokenKind::Invite, world), Token::mint(TokenKind::Session, world));
    let (short, long, as_session) = (&opens[..opens.len() - 1], format!("{opens}A"), opens.replace("inv", "ses"));
    for wrong in ["", "svc_inv_", short, &long, &as_session, other.reveal(), session.reveal(), "' OR 1=1 --"] {
        assert_eq!(state(&kit, wrong).await, None, "{wrong}");
        let refused = accept(&kit, ada, wrong).await;
        assert!(matches!(refused, Err(OrgError::InviteUnknown)), "{wrong}: {refused:?}");
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(state(&kit, &opens).await, Some(InviteState::Pending));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_accepts_becomes_a_member_whatever_their_address() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    for role in [Role::Viewer, Role::Member, Role::Admin] {
        let outcome = kit.invite(org, ada, &format!("{role}@elsewhere.example"), role).await.unwrap();
        let (Invited::New(InviteCreated { invite, .. }) | Invited::Again(InviteCreated { invite, .. })) = &outcome;
        kit.audited().await;
        let user = kit.db_user(&format!("new-{role}")).await;
        let now = kit.now();
        let joined = accept(&kit, user, &token(&outcome)).await.unwrap();
        let data = json!({ "email": invite.email, "user": user, "role": role, "alreadyMember": false });
        assert_eq!(kit.audited().await, [told("member.accept", &by(user), org, invite.id, data)]);
        let seen = kit.orgs.list(user, None, &Paging::default()).await.unwrap().items;
        assert_eq!((joined.role, joined.already_member, joined.org.role), (role, false, role));
        assert_eq!(seen, [joined.org]);
        let members = kit.orgs.members(org, &Paging::default()).await.unwrap().items;
        let member = members.into_iter().find(|member| member.user_id == user).unwrap();
        assert_eq!((member.role, member.joined_at), (role, now));

        // Once: for whoever joined, and for everybody else.
        for again in [user, ada] {
            assert_eq!(accept(&kit, again, &token(&outcome)).await.unwrap_err().code(), &OrgError::INVITE_USED);
        }
        assert_eq!(kit.audited().await, []);
    }
    // Somebody removed comes back by another invitation alone.
    assert_eq!(listed(&kit, org).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_who_accepts_keeps_the_role_and_uses_the_invitation_up() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let bob = kit.joined(org, "bob", Role::Viewer).await;
    for (user, kept, invited_as) in [(bob, Role::Viewer, Role::Admin), (ada, Role::Admin, Role::Viewer)] {
        let outcome = kit.invite(org, ada, "another@example.com", invited_as).await.unwrap();
        let Invited::New(InviteCreated { invite, .. }) = &outcome else { panic!("not new: {outcome:?}") };
        kit.audited().await;
        let joined = accept(&kit, user, &token(&outcome)).await.unwrap();
        assert_eq!((joined.role, joined.already_member, joined.org.role), (kept, true, kept));
        let data = json!({ "email": "another@example.com", "user": user, "role": kept, "alreadyMember": true });
        assert_eq!(kit.audited().await, [told("member.accept", &by(user), org, invite.id, data)]);
        assert_eq!(state(&kit, &token(&outcome)).await, Some(InviteState::Used));
        let left = "SELECT count(*) FROM orgs.members";
        assert_eq!(kit.db_number(left).await, 2);
    }
    let roles = "SELECT count(*) FROM orgs.members WHERE role IN ('viewer', 'admin')";
    assert_eq!(kit.db_number(roles).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_the_address_where_it_must_and_a_link_nowhere() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (revoked, _) = invited(&kit, org, ada, "lost@example.com").await;
    revoke(&kit, org, revoked.id).await.unwrap();
    kit.audited().await;
    invited(&kit, org, ada, "bob@example.com").await;
    let (_, opens) = invited(&kit, org, ada, "bob@example.com").await;
    let bob = kit.db_user("robert").await;
    accept(&kit, bob, &opens).await.unwrap();
    let events =
        "SELECT event, data ->> 'email' AS email FROM store.audit WHERE event LIKE 'member.%' ORDER BY created_at";
    let row = |event: &str, email: Option<&str>| json!({ "event": event, "email": email });
    let expected = [
        row("member.invite", Some("lost@example.com")),
        row("member.uninvite", None),
        row("member.invite", Some("bob@example.com")),
        row("member.invite", Some("bob@example.com")),
        row("member.accept", Some("bob@example.com")),
    ];
    assert_eq!(kit.database.rows(events).await, expected);
    let others = "SELECT count(*) FROM store.audit a \
         WHERE a::text LIKE '%@%' AND event NOT IN ('member.invite', 'member.accept')";
    assert_eq!(kit.db_number(others).await, 0);
    // Nor the address of whoever accepted, where it is another one.
    assert_eq!(kit.db_number("SELECT count(*) FROM store.audit a WHERE a::text LIKE '%robert@%'").await, 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM store.audit a WHERE a::text LIKE '%svc\\_inv\\_%'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_no_admin_any_more_leaves_no_open_link_behind() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let eve = kit.joined(org, "eve", Role::Admin).await;
    let (_, removed) = invited(&kit, org, eve, "eve-2@example.com").await;
    let (_, kept) = invited(&kit, org, ada, "bob@example.com").await;
    kit.orgs.member_remove(&by(ada), Role::Admin, org, eve).await.unwrap();
    assert!(matches!(accept(&kit, eve, &removed).await, Err(OrgError::InviteRevoked)));

    let zoe = kit.joined(org, "zoe", Role::Admin).await;
    let (_, demoted) = invited(&kit, org, zoe, "zoe-2@example.com").await;
    let queued = "SELECT count(*) FROM store.outbox";
    assert_eq!(kit.db_number(queued).await, 2);
    kit.audited().await;
    let change = orgs::RoleChange { role: Role::Member };
    kit.orgs.member_set_role(&by(ada), org, zoe, change).await.unwrap();
    assert_eq!(kit.audited().await[0].data["invitesRevoked"], 1);
    assert!(matches!(accept(&kit, zoe, &demoted).await, Err(OrgError::InviteRevoked)));
    // The other admin's go on.
    assert_eq!(kit.db_number(queued).await, 1);
    accept(&kit, eve, &kept).await.unwrap();
}
