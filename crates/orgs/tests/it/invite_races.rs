//! Invitations that many change at once: what comes of it is what one after the other could have done.

use std::pin::Pin;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use kernel::{InviteId, OrgId, Role, UserId};
use orgs::{InviteCreated, InviteState, Invited, Joined, OrgError};
use serde_json::json;

use crate::kit::{Kit, by, token};

const ROUNDS: usize = 12;

/// What came of one of those who raced.
enum Did {
    Accepted(Result<Joined, OrgError>),
    Revoked(Result<(), OrgError>),
    Resent(Result<Invited, OrgError>),
}

async fn invited(kit: &Kit, org: OrgId, ada: UserId, email: &str) -> (InviteId, String) {
    let outcome = kit.invite(org, ada, email, Role::Member).await.unwrap();
    kit.audited().await;
    let token = token(&outcome);
    let (Invited::New(InviteCreated { invite, .. }) | Invited::Again(InviteCreated { invite, .. })) = outcome;
    (invite.id, token)
}

async fn count(kit: &Kit, of: &str) -> i64 {
    kit.db_number(&format!("SELECT count(*) FROM {of}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_who_accept_one_invitation_one_joins() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 0..ROUNDS {
        let (id, opens) = invited(&kit, org, ada, &format!("user-{round}@example.com")).await;
        let users = kit.db_users(&format!("round-{round}"), 20).await;
        let actors: Vec<_> = users.iter().map(|user| by(*user)).collect();
        let accepts = users.iter().zip(&actors).map(|(user, actor)| kit.orgs.invite_accept(actor, *user, &opens));
        let outcomes = join_all(accepts).await;
        let joined: Vec<UserId> =
            users.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).map(|(user, _)| *user).collect();
        let [joined] = joined.as_slice() else { panic!("one is expected: {outcomes:?}") };
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(OrgError::InviteUsed))), "{outcomes:?}");

        let members = format!("orgs.members WHERE user_id <> '{}'", ada.as_uuid());
        assert_eq!(count(&kit, &members).await, i64::try_from(round).unwrap() + 1);
        let told = kit.audited().await;
        let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
        assert_eq!((row.event.as_str(), &row.target, row.actor_id), ("member.accept", &id.to_string(), Some(*joined)));
        let used = format!("orgs.invites WHERE id = '{}' AND accepted_by = '{}'", id.as_uuid(), joined.as_uuid());
        assert_eq!(count(&kit, &used).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_accepts_two_invitations_at_once_joins_once_and_uses_both() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 0..ROUNDS {
        let (bob, mut links) = (kit.db_user(&format!("bob-{round}")).await, Vec::new());
        for n in 0..4 {
            links.push(invited(&kit, org, ada, &format!("bob-{round}-{n}@example.com")).await.1);
        }
        let actor = by(bob);
        let outcomes = join_all(links.iter().map(|opens| kit.orgs.invite_accept(&actor, bob, opens))).await;
        let first = outcomes.iter().filter(|outcome| !outcome.as_ref().unwrap().already_member).count();
        assert_eq!((first, kit.audited().await.len()), (1, 4));
        assert_eq!(count(&kit, &format!("orgs.members WHERE user_id = '{}'", bob.as_uuid())).await, 1);
    }
    assert_eq!(count(&kit, "orgs.invites WHERE accepted_by IS NULL").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn accept_revoke_and_resend_at_once_come_one_after_the_other() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 0..ROUNDS * 3 {
        let email = format!("user-{round}@example.com");
        let (id, opens) = invited(&kit, org, ada, &email).await;
        let bob = kit.db_user(&format!("bob-{round}")).await;
        let (admin, guest) = (by(ada), by(bob));
        let mut racers: Vec<Pin<Box<dyn Future<Output = Did> + Send + '_>>> = vec![
            Box::pin(async { Did::Accepted(kit.orgs.invite_accept(&guest, bob, &opens).await) }),
            Box::pin(async { Did::Revoked(kit.orgs.invite_revoke(&admin, org, id).await) }),
            Box::pin(async { Did::Resent(kit.invite(org, ada, &email, Role::Viewer).await) }),
        ];
        // Another one goes first each time.
        racers.rotate_left(round % 3);
        let (mut accepted, mut revoked, mut resent) = (None, None, None);
        for did in join_all(racers).await {
            match did {
                Did::Accepted(outcome) => accepted = Some(outcome),
                Did::Revoked(outcome) => revoked = Some(outcome),
                Did::Resent(outcome) => resent = Some(outcome.unwrap()),
            }
        }
        let resent = resent.unwrap();
        let (state, told) = match (accepted.unwrap(), revoked.unwrap(), &resent) {
            // Accepted first: there is nothing to take back, and whom it was for is invited anew.
            (
                Ok(Joined { role: Role::Member, already_member: false, .. }),
                Err(OrgError::InviteNotFound),
                Invited::New(_),
            ) => ("used", ["member.accept", "member.invite"]),
            // Taken back first.
            (Err(OrgError::InviteRevoked), Ok(()), Invited::New(_)) => {
                ("revoked", ["member.invite", "member.uninvite"])
            }
            // Sent again first: the link opens nothing any more.
            (Err(OrgError::InviteUnknown), Ok(()), Invited::Again(_)) => {
                ("revoked", ["member.invite", "member.uninvite"])
            }
            impossible => panic!("no order leads to this: {impossible:?}"),
        };
        let rows = kit.audited().await;
        assert_eq!(rows.iter().map(|row| row.event.as_str()).collect::<Vec<_>>(), told, "{rows:?}");
        let joined = count(&kit, &format!("orgs.members WHERE user_id = '{}'", bob.as_uuid())).await;
        assert_eq!(joined, i64::from(state == "used"));
        let ended = "SELECT CASE WHEN accepted_by IS NULL THEN 'revoked' ELSE 'used' END AS state, accepted_by \
             FROM orgs.invites WHERE ended_at IS NOT NULL AND id = ";
        let by = (state == "used").then(|| bob.as_uuid().to_string());
        let ended = kit.database.rows(&format!("{ended}'{}'", id.as_uuid())).await;
        assert_eq!(ended, [json!({ "state": state, "accepted_by": by })]);
        // The link that was handed out last, and its mail, are there unless it was taken back.
        let anew = matches!(resent, Invited::New(_));
        let view = kit.orgs.invite_preview(&token(&resent)).await.unwrap();
        assert_eq!(view.state, if anew { InviteState::Pending } else { InviteState::Revoked });
        assert_eq!(count(&kit, "store.outbox").await, i64::from(anew));
        kit.db_execute("DELETE FROM store.outbox").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_sixty_invitations_at_once_fifty_are_made() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    for round in 1..=3 {
        let org = kit.org(ada, &format!("org-{round}")).await.id;
        let emails: Vec<_> = (0..60).map(|n| format!("user-{n}@example.com")).collect();
        // As many at once as there are connections.
        let invites = stream::iter(&emails).map(|email| kit.invite(org, ada, email, Role::Viewer)).buffer_unordered(32);
        let outcomes = invites.collect::<Vec<_>>().await;
        let (made, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((made.len(), refused.len()), (50, 10));
        assert!(made.iter().all(|outcome| matches!(outcome, Ok(Invited::New(_)))));
        assert!(refused.iter().all(|outcome| matches!(outcome, Err(OrgError::TooManyInvites(50)))), "{refused:?}");
        assert_eq!(kit.audited().await.len(), 50);
        assert_eq!((count(&kit, "orgs.invites").await, count(&kit, "store.outbox").await), (50 * round, 50 * round));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_invited_twenty_times_at_once_has_one_invitation_and_one_link() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    for round in 1..=5 {
        let emails: Vec<_> = (0..20)
            .map(|n| if n % 2 == 0 { format!("bob-{round}@example.com") } else { format!("BOB-{round}@EXAMPLE.com") })
            .collect();
        let outcomes = join_all(emails.iter().map(|email| kit.invite(org, ada, email, Role::Viewer))).await;
        let outcomes: Vec<Invited> = outcomes.into_iter().map(Result::unwrap).collect();
        let new = outcomes.iter().filter(|outcome| matches!(outcome, Invited::New(_))).count();
        assert_eq!((new, outcomes.len()), (1, 20));
        let mut open = 0;
        for outcome in &outcomes {
            open += usize::from(kit.orgs.invite_preview(&token(outcome)).await.is_ok());
        }
        assert_eq!(open, 1, "of twenty links the last one opens");
        let told = kit.audited().await;
        let again = told.iter().filter(|row| row.data["again"] == true).count();
        assert_eq!((told.len(), again), (20, 19));
        assert_eq!((count(&kit, "orgs.invites").await, count(&kit, "store.outbox").await), (round, round));
    }
}
