//! Previewing and accepting invitations.

use kernel::{ApiError as _, Code, Paging, Role, Token, TokenKind};
use orgs::{InviteCreated, InviteOutcome, InviteState, InviteView, OrgError};
use serde_json::json;
use store::BATCH_SIZE;

use crate::invites::{DAY, accept, acme, invited, listed, revoke, state};
use crate::kit::{Kit, audit_row, session_actor, token};

#[tokio::test(flavor = "multi_thread")]
async fn ended_invitation_is_visible_for_thirty_days() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    kit.db_execute("UPDATE orgs.orgs SET name = 'Acme & Sons'").await;
    let (pending, pending_token) = invited(&kit, org, ada, "bob@example.com").await;
    let view = InviteView {
        state: InviteState::Pending,
        org_name: "Acme & Sons".to_owned(),
        org_slug: "acme".parse().unwrap(),
        role: Role::Member,
        expires_at: pending.expires_at,
    };
    assert_eq!(kit.orgs.invite_preview(&pending_token).await.unwrap(), view);
    let (_, used) = invited(&kit, org, ada, "eve@example.com").await;
    let (revoked_invite, revoked) = invited(&kit, org, ada, "zoe@example.com").await;
    // The first invitation has now expired; the second has one second left.
    kit.advance(7 * DAY - 3);
    assert_eq!(state(&kit, &pending_token).await, Some(InviteState::Expired));
    assert_eq!(state(&kit, &used).await, Some(InviteState::Pending));
    let eve = kit.db_user("eve").await;
    revoke(&kit, org, revoked_invite.id).await.unwrap();
    accept(&kit, eve, &used).await.unwrap();

    kit.advance(30 * DAY - 1);
    let states = async || [state(&kit, &pending_token).await, state(&kit, &used).await, state(&kit, &revoked).await];
    assert_eq!(states().await, [Some(InviteState::Expired), Some(InviteState::Used), Some(InviteState::Revoked)]);
    let bob = kit.db_user("bob").await;
    for (link_token, code) in [
        (&pending_token, &OrgError::INVITE_EXPIRED),
        (&used, &OrgError::INVITE_USED),
        (&revoked, &OrgError::INVITE_REVOKED),
    ] {
        assert_eq!(accept(&kit, bob, link_token).await.unwrap_err().code(), code);
    }
    kit.advance(1);
    // A listed invitation stays visible.
    assert_eq!(states().await, [Some(InviteState::Expired), None, None]);
    for link_token in [&used, &revoked] {
        assert_eq!(accept(&kit, bob, link_token).await.unwrap_err().code(), &Code::NOT_FOUND);
    }
    // The next invitation purges the rows.
    kit.advance(1);
    invited(&kit, org, ada, "new@example.com").await;
    assert_eq!(kit.db_number("SELECT count(*) FROM orgs.invites").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_purges_at_most_a_batch() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let ended = format!(
        "INSERT INTO orgs.invites (id, org_id, email, role, token_hash, invited_by, created_at, expires_at, ended_at) \
         SELECT gen_random_uuid(), id, 'bob@example.com', 'member', sha256(n::text::bytea), gen_random_uuid(), \
                'epoch', 'epoch', 'epoch' FROM orgs.orgs, generate_series(1, {BATCH_SIZE} + 2) n"
    );
    kit.db_execute(&ended).await;
    for (email, rows) in [("eve@example.com", 3), ("zoe@example.com", 2)] {
        invited(&kit, org, ada, email).await;
        assert_eq!(kit.db_number("SELECT count(*) FROM orgs.invites").await, rows);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_invite_token_is_rejected() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (_, link_token) = invited(&kit, org, ada, "bob@example.com").await;
    let clock_rng = kit.store.clock_rng();
    let (other, session) = (Token::mint(TokenKind::Invite, clock_rng), Token::mint(TokenKind::Session, clock_rng));
    let (short, long, as_session) =
        (&link_token[..link_token.len() - 1], format!("{link_token}A"), link_token.replace("inv", "ses"));
    for wrong in ["", "svc_inv_", short, &long, &as_session, other.reveal(), session.reveal(), "' OR 1=1 --"] {
        assert_eq!(state(&kit, wrong).await, None, "{wrong}");
        let refused = accept(&kit, ada, wrong).await;
        assert!(matches!(refused, Err(OrgError::InviteUnknown)), "{wrong}: {refused:?}");
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(state(&kit, &link_token).await, Some(InviteState::Pending));
}

#[tokio::test(flavor = "multi_thread")]
async fn accepting_user_becomes_a_member_regardless_of_the_address() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    for role in [Role::Viewer, Role::Member, Role::Admin] {
        let outcome = kit.invite(org, ada, &format!("{role}@elsewhere.example"), role).await.unwrap();
        let (InviteOutcome::Created(InviteCreated { invite, .. })
        | InviteOutcome::Resent(InviteCreated { invite, .. })) = &outcome;
        kit.audited().await;
        let user = kit.db_user(&format!("new-{role}")).await;
        let now = kit.now();
        let joined = accept(&kit, user, &token(&outcome)).await.unwrap();
        let data = json!({ "email": invite.email, "user": user, "role": role, "alreadyMember": false });
        assert_eq!(kit.audited().await, [audit_row("member.accept", &session_actor(user), org, invite.id, data)]);
        let seen = kit.orgs.list(user, None, &Paging::default()).await.unwrap().items;
        assert_eq!((joined.role, joined.already_member, joined.org.role), (role, false, role));
        assert_eq!(seen, [joined.org]);
        let members = kit.orgs.members(org, &Paging::default()).await.unwrap().items;
        let member = members.into_iter().find(|member| member.user_id == user).unwrap();
        assert_eq!((member.role, member.joined_at), (role, now));

        // The link is used up for all users.
        for again in [user, ada] {
            assert_eq!(accept(&kit, again, &token(&outcome)).await.unwrap_err().code(), &OrgError::INVITE_USED);
        }
        assert_eq!(kit.audited().await, []);
    }
    // Accepted invitations are not listed.
    assert_eq!(listed(&kit, org).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn accepting_member_keeps_the_role_and_uses_the_invitation() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let bob = kit.joined(org, "bob", Role::Viewer).await;
    for (user, kept, invited_as) in [(bob, Role::Viewer, Role::Admin), (ada, Role::Admin, Role::Viewer)] {
        let outcome = kit.invite(org, ada, "another@example.com", invited_as).await.unwrap();
        let InviteOutcome::Created(InviteCreated { invite, .. }) = &outcome else { panic!("not new: {outcome:?}") };
        kit.audited().await;
        let joined = accept(&kit, user, &token(&outcome)).await.unwrap();
        assert_eq!((joined.role, joined.already_member, joined.org.role), (kept, true, kept));
        let data = json!({ "email": "another@example.com", "user": user, "role": kept, "alreadyMember": true });
        assert_eq!(kit.audited().await, [audit_row("member.accept", &session_actor(user), org, invite.id, data)]);
        assert_eq!(state(&kit, &token(&outcome)).await, Some(InviteState::Used));
        let members = "SELECT count(*) FROM orgs.members";
        assert_eq!(kit.db_number(members).await, 2);
    }
    let roles = "SELECT count(*) FROM orgs.members WHERE role IN ('viewer', 'admin')";
    assert_eq!(kit.db_number(roles).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_invite_and_accept_events_contain_the_address() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (revoked, _) = invited(&kit, org, ada, "lost@example.com").await;
    revoke(&kit, org, revoked.id).await.unwrap();
    kit.audited().await;
    invited(&kit, org, ada, "bob@example.com").await;
    let (_, link_token) = invited(&kit, org, ada, "bob@example.com").await;
    let bob = kit.db_user("robert").await;
    accept(&kit, bob, &link_token).await.unwrap();
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
    // The address of the accepting user is never logged.
    assert_eq!(kit.db_number("SELECT count(*) FROM store.audit a WHERE a::text LIKE '%robert@%'").await, 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM store.audit a WHERE a::text LIKE '%svc\\_inv\\_%'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_or_demoted_admin_loses_open_invitations() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let eve = kit.joined(org, "eve", Role::Admin).await;
    let (_, removed) = invited(&kit, org, eve, "eve-2@example.com").await;
    let (_, kept) = invited(&kit, org, ada, "bob@example.com").await;
    kit.orgs.member_remove(&session_actor(ada), Role::Admin, org, eve).await.unwrap();
    assert!(matches!(accept(&kit, eve, &removed).await, Err(OrgError::InviteRevoked)));

    let zoe = kit.joined(org, "zoe", Role::Admin).await;
    let (_, demoted) = invited(&kit, org, zoe, "zoe-2@example.com").await;
    let queued = "SELECT count(*) FROM store.outbox";
    assert_eq!(kit.db_number(queued).await, 2);
    kit.audited().await;
    let change = orgs::RoleChange { role: Role::Member };
    kit.orgs.member_set_role(&session_actor(ada), org, zoe, change).await.unwrap();
    assert_eq!(kit.audited().await[0].data["invitesRevoked"], 1);
    assert!(matches!(accept(&kit, zoe, &demoted).await, Err(OrgError::InviteRevoked)));
    // Invitations of the other admin remain.
    assert_eq!(kit.db_number(queued).await, 1);
    accept(&kit, eve, &kept).await.unwrap();
}

/// The members are added directly, so their invitations stay open. They leave, are removed, or lose the role.
#[tokio::test(flavor = "multi_thread")]
async fn former_member_loses_the_open_invitation_to_their_address() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (_, other) = invited(&kit, org, ada, "other@example.org").await;
    for (subject, email) in [("bob", "BOB@Example.org"), ("eve", "eve@example.org"), ("zoe", "zoe@example.org")] {
        let (_, link_token) = invited(&kit, org, ada, email).await;
        let user = kit.joined(org, subject, Role::Admin).await;
        match subject {
            "bob" => kit.orgs.member_remove(&session_actor(ada), Role::Admin, org, user).await.unwrap(),
            "eve" => kit.orgs.member_remove(&session_actor(user), Role::Admin, org, user).await.unwrap(),
            _ => {
                let change = orgs::RoleChange { role: Role::Viewer };
                kit.orgs.member_set_role(&session_actor(ada), org, user, change).await.unwrap();
            }
        }
        assert_eq!(kit.audited().await[0].data["invitesRevoked"], 1, "{subject}");
        assert!(matches!(accept(&kit, user, &link_token).await, Err(OrgError::InviteRevoked)), "{subject}");
    }
    // Only the mail of the other invitation is still queued.
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 1);
    let bob = kit.db_user("robert").await;
    accept(&kit, bob, &other).await.unwrap();
}
