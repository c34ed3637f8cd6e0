//! Creating, resending and revoking invitations. `joining` has the tests of accepting them.

use kernel::{ApiError as _, Code, Digest, InviteId, Limits, OrgId, Page, Paging, Role, Token, TokenKind, UserId, hex};
use orgs::{Invite, InviteCreated, InviteOutcome, InviteState, JoinResult, NewInvite, OpenState, OrgError, Orgs, Site};
use serde_json::{Value, json};
use validator::Validate as _;

use crate::kit::{Kit, audit_row, new_member, session_actor, site, token};

pub const DAY: i64 = 24 * 3600;
const MAILS: &str = "SELECT topic, key FROM store.outbox ORDER BY id";

/// Creates an organization and its admin.
pub async fn acme(kit: &Kit) -> (OrgId, UserId) {
    let ada = kit.db_user("ada").await;
    (kit.org(ada, "acme").await.id, ada)
}

/// Sends an invitation, discards its audit row, and returns it with its token.
pub async fn invited(kit: &Kit, org: OrgId, ada: UserId, email: &str) -> (Invite, String) {
    let outcome = kit.invite(org, ada, email, Role::Member).await.unwrap();
    assert_eq!(kit.audited().await.len(), 1);
    let token = token(&outcome);
    let (InviteOutcome::Created(InviteCreated { invite, .. }) | InviteOutcome::Resent(InviteCreated { invite, .. })) =
        outcome;
    (invite, token)
}

pub async fn listed(kit: &Kit, org: OrgId) -> Vec<Invite> {
    kit.orgs.invites(org, &Paging::default()).await.unwrap().items
}

pub async fn state(kit: &Kit, token: &str) -> Option<InviteState> {
    match kit.orgs.invite_preview(token).await {
        Ok(view) => Some(view.state),
        Err(error) => {
            assert!(matches!(error, OrgError::InviteUnknown), "{error:?}");
            None
        }
    }
}

pub async fn accept(kit: &Kit, user: UserId, token: &str) -> Result<JoinResult, OrgError> {
    kit.orgs.invite_accept(&session_actor(user), user, token).await
}

pub async fn revoke(kit: &Kit, org: OrgId, invite: InviteId) -> Result<(), OrgError> {
    kit.orgs.invite_revoke(&session_actor(kit.store.clock_rng().id()), org, invite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_hash_of_an_invite_token_is_stored() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let now = kit.now();
    let outcome = kit.invite(org, ada, "Bob@Example.com", Role::Member).await.unwrap();
    let link_token = token(&outcome);
    let InviteOutcome::Created(InviteCreated { invite, accept_url }) = outcome else { panic!("not new: {outcome:?}") };
    let expected = Invite {
        id: invite.id,
        // The case is preserved.
        email: "Bob@Example.com".to_owned(),
        role: Role::Member,
        state: OpenState::Pending,
        invited_by: ada,
        created_at: now,
        expires_at: now.plus_seconds(7 * DAY),
        sent_at: None,
    };
    assert_eq!(invite, expected);
    assert_eq!(accept_url, format!("https://dashboard.example/invites/{link_token}"));
    assert!(Token::parse(TokenKind::Invite, &link_token).is_some());
    let shown = serde_json::to_value(&listed(&kit, org).await).unwrap();
    assert_eq!(shown, json!([expected]));
    assert!(!shown.to_string().contains("svc_inv_"));

    let hash = "SELECT encode(token_hash, 'hex') AS hash FROM orgs.invites";
    assert_eq!(kit.database.rows(hash).await, [json!({ "hash": Digest::of(link_token.as_bytes()).hex() })]);
    let hex = hex(link_token.as_bytes());
    for table in ["orgs.invites", "store.outbox", "store.audit"] {
        let rows = Value::from(kit.database.rows(&format!("SELECT t::text FROM {table} t")).await).to_string();
        assert!(rows.contains(&invite.id.to_string()) || table == "orgs.invites", "{rows}");
        assert!(!rows.contains(&link_token) && !rows.contains(&hex), "{rows}");
    }
    let data = json!({ "email": "Bob@Example.com", "role": "member", "again": false });
    assert_eq!(kit.audited().await, [audit_row("member.invite", &session_actor(ada), org, invite.id, data)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resend_updates_the_invitation_and_replaces_its_link() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let eve = kit.joined(org, "eve", Role::Admin).await;
    let (first, mut old) = invited(&kit, org, ada, "bob@example.com").await;
    // Resend the invitation once while it is pending, and once after it has expired.
    for (at, (wait, email, role)) in
        [(DAY, "BOB@example.com", Role::Admin), (7 * DAY, "bob@EXAMPLE.com", Role::Viewer)].into_iter().enumerate()
    {
        kit.db_execute("UPDATE orgs.invites SET sent_at = created_at").await;
        kit.advance(wait);
        let now = kit.now();
        let outcome = kit.invite(org, eve, email, role).await.unwrap();
        let new = token(&outcome);
        let InviteOutcome::Resent(InviteCreated { invite, .. }) = outcome else { panic!("not again: {outcome:?}") };
        let expected = Invite {
            email: email.to_owned(),
            role,
            invited_by: eve,
            expires_at: now.plus_seconds(7 * DAY),
            sent_at: None,
            ..first.clone()
        };
        assert_eq!(invite, expected, "{at}");
        assert_eq!(listed(&kit, org).await, [expected]);
        let data = json!({ "email": email, "role": role, "again": true });
        assert_eq!(kit.audited().await, [audit_row("member.invite", &session_actor(eve), org, first.id, data)]);
        // Only the mail with the new link is queued.
        let mails = [json!({ "topic": "orgs.invite", "key": first.id.to_string() })];
        assert_eq!(kit.database.rows(MAILS).await, mails);
        let bob = kit.db_user(&format!("bob-{at}")).await;
        let refused = accept(&kit, bob, &old).await;
        assert!(matches!(refused, Err(OrgError::InviteUnknown)), "{refused:?}");
        assert_eq!((state(&kit, &old).await, state(&kit, &new).await), (None, Some(InviteState::Pending)));
        old = new;
    }
    let bob = kit.db_user("bob").await;
    assert_eq!(accept(&kit, bob, &old).await.unwrap().role, Role::Viewer);
    // An accepted invitation does not change. Inviting the address again creates a new invitation.
    let outcome = kit.invite(org, ada, "bob@example.com", Role::Member).await.unwrap();
    assert!(matches!(&outcome, InviteOutcome::Created(created) if created.invite.id != first.id), "{outcome:?}");
    assert_eq!(state(&kit, &old).await, Some(InviteState::Used));
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_member_is_rejected_ignoring_case() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (other, eve) = (kit.org(ada, "other").await.id, kit.db_user("eve").await);
    // Bob is invited first, and then added directly.
    invited(&kit, org, ada, "bob@example.org").await;
    let bob = kit.joined(org, "bob", Role::Viewer).await;
    for email in ["bob@example.org", "BOB@Example.ORG", "ada@example.org"] {
        let refused = kit.invite(org, ada, email, Role::Member).await.unwrap_err();
        assert_eq!(refused.code(), &OrgError::ALREADY_MEMBER, "{email}");
    }
    assert_eq!((kit.audited().await, listed(&kit, org).await.len()), (vec![], 1));
    // These can be invited: a user who is not a member, a member of another organization, and a removed member.
    assert!(kit.invite(org, ada, "eve@example.org", Role::Member).await.is_ok());
    assert!(kit.invite(other, ada, "bob@example.org", Role::Member).await.is_ok());
    kit.orgs.member_remove(&session_actor(ada), Role::Admin, org, bob).await.unwrap();
    assert!(matches!(kit.invite(org, ada, "bob@example.org", Role::Member).await, Ok(InviteOutcome::Created(_))));
    kit.orgs.member_add(&session_actor(ada), org, new_member("eve", Role::Viewer)).await.unwrap();
    // A LIKE pattern is an ordinary address.
    assert!(kit.invite(org, ada, "%@example.org", Role::Member).await.is_ok());
    assert!(kit.orgs.members(org, &Paging::default()).await.unwrap().items.iter().any(|member| member.user_id == eve));
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_invitations_are_limited() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let mut open = Vec::new();
    for n in 0..50 {
        let outcome = kit.invite(org, ada, &format!("user-{n}@example.com"), Role::Viewer).await.unwrap();
        assert!(matches!(outcome, InviteOutcome::Created(_)), "{outcome:?}");
        open.push(outcome);
    }
    kit.audited().await;
    let invite = async |email: &str| kit.invite(org, ada, email, Role::Viewer).await;
    let refuses = async |email: &str| {
        let refused = invite(email).await.unwrap_err();
        assert_eq!((refused.code(), refused.details()), (&OrgError::TOO_MANY_INVITES, Some(json!({ "limit": 50 }))));
        assert_eq!(kit.audited().await, []);
    };
    refuses("late@example.com").await;
    // A resend does not count, and another organization has its own limit.
    assert!(matches!(invite("USER-7@example.com").await, Ok(InviteOutcome::Resent(_))));
    assert!(kit.invite(other, ada, "late@example.com", Role::Viewer).await.is_ok());
    kit.audited().await;
    refuses("late@example.com").await;

    // Revoked and used invitations do not count.
    let (InviteOutcome::Created(first) | InviteOutcome::Resent(first)) = &open[0];
    revoke(&kit, org, first.invite.id).await.unwrap();
    assert!(matches!(invite("late-1@example.com").await, Ok(InviteOutcome::Created(_))));
    let bob = kit.db_user("bob").await;
    accept(&kit, bob, &token(&open[1])).await.unwrap();
    assert!(matches!(invite("late-2@example.com").await, Ok(InviteOutcome::Created(_))));
    kit.audited().await;
    refuses("late-3@example.com").await;

    // Expired invitations do not count until they are sent again.
    kit.advance(7 * DAY);
    for n in 0..49 {
        assert!(matches!(invite(&format!("new-{n}@example.com")).await, Ok(InviteOutcome::Created(_))), "{n}");
    }
    assert!(matches!(invite("user-2@example.com").await, Ok(InviteOutcome::Resent(_))));
    kit.audited().await;
    refuses("user-3@example.com").await;
    refuses("new-49@example.com").await;
    assert!(matches!(invite("user-2@example.com").await, Ok(InviteOutcome::Resent(_))));
    // Expired invitations of the first week are still listed.
    let open = format!("SELECT count(*) FROM orgs.invites WHERE ended_at IS NULL AND org_id = '{}'", org.as_uuid());
    assert_eq!(kit.db_number(&open).await, 50 + 49);
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_pending_invitations_depends_on_the_plan() {
    let mut limits = Limits::default();
    (limits.free.invites, limits.pro.invites) = (1, 2);
    let kit = Kit::with(limits).await;
    let (org, ada) = acme(&kit).await;
    let invite = async |email: &str| kit.invite(org, ada, email, Role::Viewer).await;
    assert!(invite("a@example.com").await.is_ok());
    assert!(matches!(invite("b@example.com").await, Err(OrgError::TooManyInvites(1))));
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    assert!(invite("b@example.com").await.is_ok());
    assert!(matches!(invite("c@example.com").await, Err(OrgError::TooManyInvites(2))));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_invitations_including_expired_ones_are_listed_newest_first() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let mut open = Vec::new();
    for n in 0..30 {
        let (invite, link_token) = invited(&kit, org, ada, &format!("user-{n}@example.com")).await;
        invited(&kit, other, ada, &format!("user-{n}@example.com")).await;
        match n % 5 {
            3 => revoke(&kit, org, invite.id).await.unwrap(),
            4 => drop(accept(&kit, kit.db_user(&format!("user-{n}")).await, &link_token).await.unwrap()),
            _ => open.insert(0, invite),
        }
        // The first ones expire before the last ones are created.
        kit.advance(DAY / 2);
    }
    for limit in [1, 5, 17, 18, 19] {
        let (mut paging, mut seen) = (Paging { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.orgs.invites(org, &paging).await.unwrap();
            seen.extend(items);
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        let now = kit.now();
        assert!(seen.iter().all(|invite| (invite.expires_at <= now) == (invite.state == OpenState::Expired)));
        let expired = seen.iter().filter(|invite| invite.state == OpenState::Expired).count();
        assert!((1..18).contains(&expired), "{expired}");
        seen.iter_mut().for_each(|invite| invite.state = OpenState::Pending);
        assert_eq!(seen, open, "with {limit} on a page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_invitation_is_revoked_once() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let (invite, link_token) = invited(&kit, org, ada, "bob@example.com").await;
    let (used, used_token) = invited(&kit, org, ada, "eve@example.com").await;
    let eve = kit.db_user("eve").await;
    accept(&kit, eve, &used_token).await.unwrap();
    kit.audited().await;

    let actor = session_actor(ada);
    let assert_not_found = async |org, id| {
        let refused = kit.orgs.invite_revoke(&actor, org, id).await.unwrap_err();
        assert!(matches!(refused, OrgError::InviteNotFound) && refused.code() == &Code::NOT_FOUND, "{refused:?}");
        assert_eq!(kit.audited().await, []);
    };
    assert_not_found(org, kit.store.clock_rng().id()).await;
    assert_not_found(other, invite.id).await;
    assert_not_found(kit.store.clock_rng().id(), invite.id).await;
    assert_not_found(org, used.id).await;
    assert_eq!(
        (state(&kit, &link_token).await, state(&kit, &used_token).await),
        (Some(InviteState::Pending), Some(InviteState::Used))
    );

    kit.orgs.invite_revoke(&actor, org, invite.id).await.unwrap();
    // The event does not contain the address.
    assert_eq!(kit.audited().await, [audit_row("member.uninvite", &actor, org, invite.id, json!({}))]);
    assert_eq!((state(&kit, &link_token).await, listed(&kit, org).await), (Some(InviteState::Revoked), vec![]));
    assert_not_found(org, invite.id).await;
    let bob = kit.db_user("bob").await;
    assert_eq!(accept(&kit, bob, &link_token).await.unwrap_err().code(), &OrgError::INVITE_REVOKED);

    // An expired invitation can be revoked, too.
    let (expired, _) = invited(&kit, org, ada, "zoe@example.com").await;
    kit.advance(7 * DAY);
    kit.orgs.invite_revoke(&actor, org, expired.id).await.unwrap();
    assert_eq!(listed(&kit, org).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_or_resent_invitation_withdraws_its_queued_mail() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let mails = async || kit.database.rows(MAILS).await;
    let mail = |invite: &Invite| json!({ "topic": "orgs.invite", "key": invite.id.to_string() });
    let (bob_invite, bob_token) = invited(&kit, org, ada, "bob@example.com").await;
    let (eve_invite, _) = invited(&kit, org, ada, "eve@example.com").await;
    assert_eq!(mails().await, [mail(&bob_invite), mail(&eve_invite)]);
    let first = kit.database.rows("SELECT id FROM store.outbox ORDER BY id").await;
    // A resend replaces the queued mail.
    let (_, eve_token) = invited(&kit, org, ada, "eve@example.com").await;
    assert_eq!(mails().await, [mail(&bob_invite), mail(&eve_invite)]);
    let second = kit.database.rows("SELECT id FROM store.outbox ORDER BY id").await;
    assert!(first[0] == second[0] && first[1] != second[1], "{first:?} {second:?}");
    // Payloads are sealed.
    let plain = "SELECT count(*) FROM store.outbox WHERE position('svc_inv_'::bytea IN payload) > 0 \
         OR position('@example.com'::bytea IN payload) > 0";
    assert_eq!(kit.db_number(plain).await, 0);

    revoke(&kit, org, bob_invite.id).await.unwrap();
    assert_eq!(mails().await, [mail(&eve_invite)]);
    // Rejected calls withdraw no mail.
    let bob = kit.db_user("bob").await;
    assert!(accept(&kit, bob, &bob_token).await.is_err());
    assert!(revoke(&kit, org, bob_invite.id).await.is_err());
    assert_eq!(mails().await, [mail(&eve_invite)]);
    accept(&kit, bob, &eve_token).await.unwrap();
    assert_eq!(mails().await, [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_without_mail_queues_no_invitation_mail() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    // This mail was queued while the deployment still sent mail.
    let (_, old) = invited(&kit, org, ada, "bob@example.com").await;
    let without_mail = Orgs::new(kit.store.clone(), Limits::default(), Site { sends_mail: false, ..site() });
    let invite = async |email: &str| {
        let new = NewInvite { email: email.parse().unwrap(), role: Role::Viewer };
        without_mail.invite(&session_actor(ada), org, ada, new).await.unwrap()
    };
    let again = invite("bob@example.com").await;
    assert!(matches!(again, InviteOutcome::Resent(_)), "{again:?}");
    let outcome = invite("eve@example.com").await;
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
    assert!(listed(&kit, org).await.iter().all(|invite| invite.sent_at.is_none()));
    let eve = kit.db_user("eve").await;
    assert_eq!(
        without_mail.invite_accept(&session_actor(eve), eve, &token(&outcome)).await.unwrap().role,
        Role::Viewer
    );
    assert_eq!(state(&kit, &old).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_to_an_unknown_organization_is_rejected() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let refused = kit.invite(kit.store.clock_rng().id(), ada, "bob@example.com", Role::Viewer).await;
    assert!(matches!(refused, Err(OrgError::OrgNotFound)), "{refused:?}");
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
}

#[test]
fn invitation_requires_a_valid_address_and_a_role() {
    let accepts = |body: Value| serde_json::from_value::<NewInvite>(body).is_ok_and(|new| new.validate().is_ok());
    for email in ["bob@example.com", "Bob.Smith+acme@sub.example.com"] {
        assert!(accepts(json!({ "email": email, "role": "viewer" })), "{email:?}");
    }
    for email in [
        "",
        "bob",
        "bob@",
        "@example.com",
        "a b@example.com",
        "bob@example.com\n",
        "bob@example.com\r\nBcc: eve@example.com",
        "Bob <bob@example.com>",
        "bob@example.com, eve@example.com",
    ] {
        assert!(!accepts(json!({ "email": email, "role": "viewer" })), "{email:?}");
    }
    for refused in [
        json!({ "email": "bob@example.com" }),
        json!({ "role": "viewer" }),
        json!({ "email": "bob@example.com", "role": "owner" }),
        json!({ "email": "bob@example.com", "role": "viewer", "token": "mine" }),
    ] {
        assert!(!accepts(refused.clone()), "{refused}");
    }
}
