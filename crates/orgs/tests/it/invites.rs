//! Invitations as admins make them, send them again and take them back; what their holders do is in `joining`.

use kernel::{Code, Digest, Failure as _, InviteId, Limits, OrgId, Page, Paging, Role, Token, TokenKind, UserId};
use orgs::{Invite, InviteCreated, InviteState, Invited, Joined, NewInvite, OpenState, OrgError, Orgs, Site};
use serde_json::{Value, json};
use validator::Validate as _;

use crate::kit::{Kit, by, new_member, site, token, told};

pub const DAY: i64 = 24 * 3600;
const MAILS: &str = "SELECT topic, key FROM store.outbox ORDER BY id";

/// An organization and its admin.
pub async fn acme(kit: &Kit) -> (OrgId, UserId) {
    let ada = kit.db_user("ada").await;
    (kit.org(ada, "acme").await.id, ada)
}

/// An invitation that is new, and its token; its audit row has been looked at.
pub async fn invited(kit: &Kit, org: OrgId, ada: UserId, email: &str) -> (Invite, String) {
    let outcome = kit.invite(org, ada, email, Role::Member).await.unwrap();
    assert_eq!(kit.audited().await.len(), 1);
    let token = token(&outcome);
    let (Invited::New(InviteCreated { invite, .. }) | Invited::Again(InviteCreated { invite, .. })) = outcome;
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

pub async fn accept(kit: &Kit, user: UserId, token: &str) -> Result<Joined, OrgError> {
    kit.orgs.invite_accept(&by(user), user, token).await
}

pub async fn revoke(kit: &Kit, org: OrgId, invite: InviteId) -> Result<(), OrgError> {
    kit.orgs.invite_revoke(&by(kit.store.world().id()), org, invite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_has_a_link_that_is_shown_once_and_whose_hash_alone_is_kept() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let now = kit.now();
    let outcome = kit.invite(org, ada, "Bob@Example.com", Role::Member).await.unwrap();
    let opens = token(&outcome);
    let Invited::New(InviteCreated { invite, accept_url }) = outcome else { panic!("not new: {outcome:?}") };
    let expected = Invite {
        id: invite.id,
        // As it was typed.
        email: "Bob@Example.com".to_owned(),
        role: Role::Member,
        state: OpenState::Pending,
        invited_by: ada,
        created_at: now,
        expires_at: now.plus_seconds(7 * DAY),
        sent_at: None,
    };
    assert_eq!(invite, expected);
    assert_eq!(accept_url, format!("https://dashboard.example/invites/{opens}"));
    assert!(Token::parse(TokenKind::Invite, &opens).is_some());
    let shown = serde_json::to_value(&listed(&kit, org).await).unwrap();
    assert_eq!(shown, json!([expected]));
    assert!(!shown.to_string().contains("svc_inv_"));

    let hash = "SELECT encode(token_hash, 'hex') AS hash FROM orgs.invites";
    assert_eq!(kit.database.rows(hash).await, [json!({ "hash": Digest::of(opens.as_bytes()).hex() })]);
    let hex: String = opens.bytes().map(|byte| format!("{byte:02x}")).collect();
    for table in ["orgs.invites", "store.outbox", "store.audit"] {
        let rows = Value::from(kit.database.rows(&format!("SELECT t::text FROM {table} t")).await).to_string();
        assert!(rows.contains(&invite.id.to_string()) || table == "orgs.invites", "{rows}");
        assert!(!rows.contains(&opens) && !rows.contains(&hex), "{rows}");
    }
    let data = json!({ "email": "Bob@Example.com", "role": "member", "again": false });
    assert_eq!(kit.audited().await, [told("member.invite", &by(ada), org, invite.id, data)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_invited_again_in_the_same_row_under_another_link() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let eve = kit.joined(org, "eve", Role::Admin).await;
    let (first, mut old) = invited(&kit, org, ada, "bob@example.com").await;
    // While it is pending, and after it expired.
    for (at, (wait, email, role)) in
        [(DAY, "BOB@example.com", Role::Admin), (7 * DAY, "bob@EXAMPLE.com", Role::Viewer)].into_iter().enumerate()
    {
        kit.db_execute("UPDATE orgs.invites SET sent_at = now()").await;
        kit.advance(wait);
        let now = kit.now();
        let outcome = kit.invite(org, eve, email, role).await.unwrap();
        let new = token(&outcome);
        let Invited::Again(InviteCreated { invite, .. }) = outcome else { panic!("not again: {outcome:?}") };
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
        assert_eq!(kit.audited().await, [told("member.invite", &by(eve), org, first.id, data)]);
        // One mail, with the new link.
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
    // What ended stays as it is: the next one is new.
    let outcome = kit.invite(org, ada, "bob@example.com", Role::Member).await.unwrap();
    assert!(matches!(&outcome, Invited::New(created) if created.invite.id != first.id), "{outcome:?}");
    assert_eq!(state(&kit, &old).await, Some(InviteState::Used));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_members_address_is_not_invited_whatever_its_case() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (other, eve) = (kit.org(ada, "other").await.id, kit.db_user("eve").await);
    // Invited first, and then added in another way.
    invited(&kit, org, ada, "bob@example.org").await;
    let bob = kit.joined(org, "bob", Role::Viewer).await;
    for email in ["bob@example.org", "BOB@Example.ORG", "ada@example.org"] {
        let refused = kit.invite(org, ada, email, Role::Member).await.unwrap_err();
        assert_eq!(refused.code(), &OrgError::ALREADY_MEMBER, "{email}");
    }
    assert_eq!((kit.audited().await, listed(&kit, org).await.len()), (vec![], 1));
    // Somebody who is known but no member here, one who is a member elsewhere, and one who left.
    assert!(kit.invite(org, ada, "eve@example.org", Role::Member).await.is_ok());
    assert!(kit.invite(other, ada, "bob@example.org", Role::Member).await.is_ok());
    kit.orgs.member_remove(&by(ada), Role::Admin, org, bob).await.unwrap();
    assert!(matches!(kit.invite(org, ada, "bob@example.org", Role::Member).await, Ok(Invited::Again(_))));
    kit.orgs.member_add(&by(ada), org, new_member("eve", Role::Viewer)).await.unwrap();
    // A pattern is an address like any other.
    assert!(kit.invite(org, ada, "%@example.org", Role::Member).await.is_ok());
    assert!(kit.orgs.members(org, &Paging::default()).await.unwrap().items.iter().any(|member| member.user_id == eve));
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_invitations_may_be_pending() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let mut open = Vec::new();
    for n in 0..50 {
        let outcome = kit.invite(org, ada, &format!("user-{n}@example.com"), Role::Viewer).await.unwrap();
        assert!(matches!(outcome, Invited::New(_)), "{outcome:?}");
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
    // Sending one of them again adds none, and another organization has its own.
    assert!(matches!(invite("USER-7@example.com").await, Ok(Invited::Again(_))));
    assert!(kit.invite(other, ada, "late@example.com", Role::Viewer).await.is_ok());
    kit.audited().await;
    refuses("late@example.com").await;

    // What was taken back or used makes room for another.
    let (Invited::New(first) | Invited::Again(first)) = &open[0];
    revoke(&kit, org, first.invite.id).await.unwrap();
    assert!(matches!(invite("late-1@example.com").await, Ok(Invited::New(_))));
    let bob = kit.db_user("bob").await;
    accept(&kit, bob, &token(&open[1])).await.unwrap();
    assert!(matches!(invite("late-2@example.com").await, Ok(Invited::New(_))));
    kit.audited().await;
    refuses("late-3@example.com").await;

    // What expired does too, and counts again once it is sent again.
    kit.advance(7 * DAY);
    for n in 0..49 {
        assert!(matches!(invite(&format!("new-{n}@example.com")).await, Ok(Invited::New(_))), "{n}");
    }
    assert!(matches!(invite("user-2@example.com").await, Ok(Invited::Again(_))));
    kit.audited().await;
    refuses("user-3@example.com").await;
    refuses("new-49@example.com").await;
    assert!(matches!(invite("user-2@example.com").await, Ok(Invited::Again(_))));
    // Fifty of the first week are still listed.
    let open = format!("SELECT count(*) FROM orgs.invites WHERE ended_at IS NULL AND org_id = '{}'", org.as_uuid());
    assert_eq!(kit.db_number(&open).await, 50 + 49);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_is_that_of_the_plan() {
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
async fn open_invitations_are_listed_once_each_newest_first_and_expired_ones_too() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let mut open = Vec::new();
    for n in 0..30 {
        let (invite, opens) = invited(&kit, org, ada, &format!("user-{n}@example.com")).await;
        invited(&kit, other, ada, &format!("user-{n}@example.com")).await;
        match n % 5 {
            3 => revoke(&kit, org, invite.id).await.unwrap(),
            4 => drop(accept(&kit, kit.db_user(&format!("user-{n}")).await, &opens).await.unwrap()),
            _ => open.insert(0, invite),
        }
        // The first ones expire before the last ones are made.
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
async fn an_open_invitation_of_the_organization_is_taken_back_once() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let other = kit.org(ada, "other").await.id;
    let (invite, opens) = invited(&kit, org, ada, "bob@example.com").await;
    let (used, used_opens) = invited(&kit, org, ada, "eve@example.com").await;
    let eve = kit.db_user("eve").await;
    accept(&kit, eve, &used_opens).await.unwrap();
    kit.audited().await;

    let actor = by(ada);
    let nothing = async |org, id| {
        let refused = kit.orgs.invite_revoke(&actor, org, id).await.unwrap_err();
        assert!(matches!(refused, OrgError::InviteNotFound) && refused.code() == &Code::NOT_FOUND, "{refused:?}");
        assert_eq!(kit.audited().await, []);
    };
    nothing(org, kit.store.world().id()).await;
    nothing(other, invite.id).await;
    nothing(kit.store.world().id(), invite.id).await;
    nothing(org, used.id).await;
    assert_eq!(
        (state(&kit, &opens).await, state(&kit, &used_opens).await),
        (Some(InviteState::Pending), Some(InviteState::Used))
    );

    kit.orgs.invite_revoke(&actor, org, invite.id).await.unwrap();
    // The address is not told.
    assert_eq!(kit.audited().await, [told("member.uninvite", &actor, org, invite.id, json!({}))]);
    assert_eq!((state(&kit, &opens).await, listed(&kit, org).await), (Some(InviteState::Revoked), vec![]));
    nothing(org, invite.id).await;
    let bob = kit.db_user("bob").await;
    assert_eq!(accept(&kit, bob, &opens).await.unwrap_err().code(), &OrgError::INVITE_REVOKED);

    // One that expired can be taken off the list like that.
    let (expired, _) = invited(&kit, org, ada, "zoe@example.com").await;
    kit.advance(7 * DAY);
    kit.orgs.invite_revoke(&actor, org, expired.id).await.unwrap();
    assert_eq!(listed(&kit, org).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_has_one_mail_in_the_queue_until_it_is_sent_again_or_ends() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let mails = async || kit.database.rows(MAILS).await;
    let mail = |invite: &Invite| json!({ "topic": "orgs.invite", "key": invite.id.to_string() });
    let (bobs, bob_opens) = invited(&kit, org, ada, "bob@example.com").await;
    let (eves, _) = invited(&kit, org, ada, "eve@example.com").await;
    assert_eq!(mails().await, [mail(&bobs), mail(&eves)]);
    let first = kit.database.rows("SELECT id FROM store.outbox ORDER BY id").await;
    // Sent again: the newer mail takes the older one's place.
    let (_, eve_opens) = invited(&kit, org, ada, "eve@example.com").await;
    assert_eq!(mails().await, [mail(&bobs), mail(&eves)]);
    let second = kit.database.rows("SELECT id FROM store.outbox ORDER BY id").await;
    assert!(first[0] == second[0] && first[1] != second[1], "{first:?} {second:?}");
    // Payloads are sealed.
    let plain = "SELECT count(*) FROM store.outbox WHERE position('svc_inv_'::bytea IN payload) > 0 \
         OR position('@example.com'::bytea IN payload) > 0";
    assert_eq!(kit.db_number(plain).await, 0);

    revoke(&kit, org, bobs.id).await.unwrap();
    assert_eq!(mails().await, [mail(&eves)]);
    // What changes nothing withdraws nothing.
    let bob = kit.db_user("bob").await;
    assert!(accept(&kit, bob, &bob_opens).await.is_err());
    assert!(revoke(&kit, org, bobs.id).await.is_err());
    assert_eq!(mails().await, [mail(&eves)]);
    accept(&kit, bob, &eve_opens).await.unwrap();
    assert_eq!(mails().await, [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_mail_is_sent_none_is_queued_and_the_link_is_handed_on() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    // One that was queued while mail was still sent.
    let (_, old) = invited(&kit, org, ada, "bob@example.com").await;
    let silent = Orgs::new(kit.store.clone(), Limits::default(), Site { sends_mail: false, ..site() });
    let invite = async |email: &str| {
        let new = NewInvite { email: email.parse().unwrap(), role: Role::Viewer };
        silent.invite(&by(ada), org, ada, new).await.unwrap()
    };
    let again = invite("bob@example.com").await;
    assert!(matches!(again, Invited::Again(_)), "{again:?}");
    let outcome = invite("eve@example.com").await;
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
    assert!(listed(&kit, org).await.iter().all(|invite| invite.sent_at.is_none()));
    let eve = kit.db_user("eve").await;
    assert_eq!(silent.invite_accept(&by(eve), eve, &token(&outcome)).await.unwrap().role, Role::Viewer);
    assert_eq!(state(&kit, &old).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_invited_to_an_organization_that_there_is_not() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let refused = kit.invite(kit.store.world().id(), ada, "bob@example.com", Role::Viewer).await;
    assert!(matches!(refused, Err(OrgError::OrgNotFound)), "{refused:?}");
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
}

#[test]
fn an_invitation_names_an_address_and_a_role() {
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
