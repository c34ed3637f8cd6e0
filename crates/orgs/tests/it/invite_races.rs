//! Concurrent changes of invitations: each result is the result of some serial order.

use std::pin::Pin;

use futures_util::future::join_all;
use kernel::{InviteId, OrgId, Role, UserId};
use orgs::{InviteCreated, InviteOutcome, InviteState, JoinResult, OrgError};
use serde_json::json;

use crate::kit::{Kit, session_actor, token};

const ROUNDS: usize = 12;

/// The result of one concurrent call.
enum RaceResult {
    Accepted(Result<JoinResult, OrgError>),
    Revoked(Result<(), OrgError>),
    Resent(Result<InviteOutcome, OrgError>),
}

async fn invited(kit: &Kit, org: OrgId, ada: UserId, email: &str) -> (InviteId, String) {
    let outcome = kit.invite(org, ada, email, Role::Member).await.unwrap();
    kit.audited().await;
    let token = token(&outcome);
    let (InviteOutcome::Created(InviteCreated { invite, .. }) | InviteOutcome::Resent(InviteCreated { invite, .. })) =
        outcome;
    (invite.id, token)
}

async fn count(kit: &Kit, of: &str) -> i64 {
    kit.db_number(&format!("SELECT count(*) FROM {of}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_accepts_of_an_invitation_succeeds() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 0..ROUNDS {
        let (id, link_token) = invited(&kit, org, ada, &format!("user-{round}@example.com")).await;
        let users = kit.db_users(&format!("round-{round}"), 20).await;
        let actors: Vec<_> = users.iter().map(|user| session_actor(*user)).collect();
        let accepts = users.iter().zip(&actors).map(|(user, actor)| kit.orgs.invite_accept(actor, *user, &link_token));
        let outcomes = join_all(accepts).await;
        let joined: Vec<UserId> =
            users.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).map(|(user, _)| *user).collect();
        let [joined] = joined.as_slice() else { panic!("one is expected: {outcomes:?}") };
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(OrgError::InviteUsed))), "{outcomes:?}");

        let members = format!("orgs.members WHERE user_id <> '{}'", ada.as_uuid());
        assert_eq!(count(&kit, &members).await, i64::try_from(round).unwrap() + 1);
        let events = kit.audited().await;
        let [row] = events.as_slice() else { panic!("one row is expected: {events:?}") };
        assert_eq!((row.event.as_str(), &row.target, row.actor_id), ("member.accept", &id.to_string(), Some(*joined)));
        let used = format!("orgs.invites WHERE id = '{}' AND accepted_by = '{}'", id.as_uuid(), joined.as_uuid());
        assert_eq!(count(&kit, &used).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_accepts_by_one_user_join_once_and_use_all_invitations() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 0..ROUNDS {
        let (bob, mut links) = (kit.db_user(&format!("bob-{round}")).await, Vec::new());
        for n in 0..4 {
            links.push(invited(&kit, org, ada, &format!("bob-{round}-{n}@example.com")).await.1);
        }
        let actor = session_actor(bob);
        let outcomes = join_all(links.iter().map(|link_token| kit.orgs.invite_accept(&actor, bob, link_token))).await;
        let first = outcomes.iter().filter(|outcome| !outcome.as_ref().unwrap().already_member).count();
        assert_eq!((first, kit.audited().await.len()), (1, 4));
        assert_eq!(count(&kit, &format!("orgs.members WHERE user_id = '{}'", bob.as_uuid())).await, 1);
    }
    assert_eq!(count(&kit, "orgs.invites WHERE accepted_by IS NULL").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_accept_revoke_and_resend_are_serialized() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 0..ROUNDS * 3 {
        let email = format!("user-{round}@example.com");
        let (id, link_token) = invited(&kit, org, ada, &email).await;
        let bob = kit.db_user(&format!("bob-{round}")).await;
        let (admin, guest) = (session_actor(ada), session_actor(bob));
        let mut racers: Vec<Pin<Box<dyn Future<Output = RaceResult> + Send + '_>>> = vec![
            Box::pin(async { RaceResult::Accepted(kit.orgs.invite_accept(&guest, bob, &link_token).await) }),
            Box::pin(async { RaceResult::Revoked(kit.orgs.invite_revoke(&admin, org, id).await) }),
            Box::pin(async { RaceResult::Resent(kit.invite(org, ada, &email, Role::Viewer).await) }),
        ];
        // Each round starts with a different call.
        racers.rotate_left(round % 3);
        let (mut accepted, mut revoked, mut resent) = (None, None, None);
        for result in join_all(racers).await {
            match result {
                RaceResult::Accepted(outcome) => accepted = Some(outcome),
                RaceResult::Revoked(outcome) => revoked = Some(outcome),
                RaceResult::Resent(outcome) => resent = Some(outcome.unwrap()),
            }
        }
        let resent = resent.unwrap();
        let (state, events) = match (accepted.unwrap(), revoked.unwrap(), &resent) {
            // Accepted first: there is no invitation to revoke, and the resend creates a new one.
            (
                Ok(JoinResult { role: Role::Member, already_member: false, .. }),
                Err(OrgError::InviteNotFound),
                InviteOutcome::Created(_),
            ) => ("used", ["member.accept", "member.invite"]),
            // Revoked first.
            (Err(OrgError::InviteRevoked), Ok(()), InviteOutcome::Created(_)) => {
                ("revoked", ["member.invite", "member.uninvite"])
            }
            // Resent first: the old link is invalid.
            (Err(OrgError::InviteUnknown), Ok(()), InviteOutcome::Resent(_)) => {
                ("revoked", ["member.invite", "member.uninvite"])
            }
            impossible => panic!("no serial order has this result: {impossible:?}"),
        };
        let rows = kit.audited().await;
        assert_eq!(rows.iter().map(|row| row.event.as_str()).collect::<Vec<_>>(), events, "{rows:?}");
        let joined = count(&kit, &format!("orgs.members WHERE user_id = '{}'", bob.as_uuid())).await;
        assert_eq!(joined, i64::from(state == "used"));
        let ended = "SELECT CASE WHEN accepted_by IS NULL THEN 'revoked' ELSE 'used' END AS state, accepted_by \
             FROM orgs.invites WHERE ended_at IS NOT NULL AND id = ";
        let by = (state == "used").then(|| bob.as_uuid().to_string());
        let ended = kit.database.rows(&format!("{ended}'{}'", id.as_uuid())).await;
        assert_eq!(ended, [json!({ "state": state, "accepted_by": by })]);
        // The link of the resend and its mail are valid, unless the invitation was revoked afterwards.
        let is_new = matches!(resent, InviteOutcome::Created(_));
        let view = kit.orgs.invite_preview(&token(&resent)).await.unwrap();
        assert_eq!(view.state, if is_new { InviteState::Pending } else { InviteState::Revoked });
        assert_eq!(count(&kit, "store.outbox").await, i64::from(is_new));
        kit.db_execute("DELETE FROM store.outbox").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_invitations_respect_the_limit() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    for round in 1..=3 {
        let org = kit.org(ada, &format!("org-{round}")).await.id;
        let emails: Vec<_> = (0..60).map(|n| format!("user-{n}@example.com")).collect();
        let outcomes = join_all(emails.iter().map(|email| kit.invite(org, ada, email, Role::Viewer))).await;
        let (made, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((made.len(), refused.len()), (50, 10));
        assert!(made.iter().all(|outcome| matches!(outcome, Ok(InviteOutcome::Created(_)))));
        assert!(refused.iter().all(|outcome| matches!(outcome, Err(OrgError::TooManyInvites(50)))), "{refused:?}");
        assert_eq!(kit.audited().await.len(), 50);
        assert_eq!((count(&kit, "orgs.invites").await, count(&kit, "store.outbox").await), (50 * round, 50 * round));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_invitations_of_an_address_leave_one_invitation_and_one_link() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 1..=5 {
        let emails: Vec<_> = (0..20)
            .map(|n| if n % 2 == 0 { format!("bob-{round}@example.com") } else { format!("BOB-{round}@EXAMPLE.com") })
            .collect();
        let outcomes = join_all(emails.iter().map(|email| kit.invite(org, ada, email, Role::Viewer))).await;
        let outcomes: Vec<InviteOutcome> = outcomes.into_iter().map(Result::unwrap).collect();
        let new = outcomes.iter().filter(|outcome| matches!(outcome, InviteOutcome::Created(_))).count();
        assert_eq!((new, outcomes.len()), (1, 20));
        let mut open = 0;
        for outcome in &outcomes {
            open += usize::from(kit.orgs.invite_preview(&token(outcome)).await.is_ok());
        }
        assert_eq!(open, 1, "only the last of twenty links is valid");
        let events = kit.audited().await;
        let again = events.iter().filter(|row| row.data["again"] == true).count();
        assert_eq!((events.len(), again), (20, 19));
        assert_eq!((count(&kit, "orgs.invites").await, count(&kit, "store.outbox").await), (round, round));
    }
}
