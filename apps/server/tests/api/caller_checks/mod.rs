//! A caller who loses the permission while a request is in progress changes nothing, because the transaction of every
//! write checks the credential and the role again.

mod fixture;
mod writes;

use std::collections::BTreeSet;

use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};
use futures_util::future::join_all;
use serde_json::json;
use store::Connection;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use self::fixture::{Fixture, Kind, Loss, Sender, expected, response};
use self::writes::{AUDIT_LOCK, Wait, Write};
use crate::support::{App, Caller, eventually};

/// Operations that change nothing even though their method is not GET.
const NO_WRITE: &[&str] = &["post /v1/access/authorize", "post /v1/orgs/{orgSlug}/domains/check"];

/// The number of requests that wait for their bodies at the same time. A request waits for a limited time.
const SIMULTANEOUS: usize = 4;

/// Checks that the table contains every write, and that each write succeeds for an authorized caller.
#[tokio::test(flavor = "multi_thread")]
async fn writes_succeed_for_authorized_callers() {
    let fixture = Fixture::new().await;
    let writes = fixture.writes().await;
    let known = writes.iter().filter(|write| !write.is_powerdns()).map(|write| write.route);
    let known: BTreeSet<&str> = known.chain(NO_WRITE.iter().copied()).collect();
    let document = fixture.app.document.clone();
    let served: Vec<String> = document
        .operations()
        .filter(|(method, _, operation)| *method != "get" && operation["x-place"] != "open")
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    assert_eq!(known, served.iter().map(String::as_str).collect(), "the writes of the OpenAPI document");
    for write in &writes {
        let kind = if write.is_powerdns() { Kind::Token } else { Kind::Session };
        let (sender, path) = fixture.sender(write, kind).await.unwrap();
        let mut stream = fixture.send(write, &path, &sender.token).await;
        stream.write_all(write.body.split_at(write.body.len().saturating_sub(1)).1).await.unwrap();
        let (status, code) = response(stream).await;
        assert!((200..300).contains(&status), "{}: {status} {code}", write.route);
    }
}

/// The permission ends while the client sends the body.
#[tokio::test(flavor = "multi_thread")]
async fn write_with_a_delayed_body_is_rejected() {
    let fixture = Fixture::new().await;
    let writes = fixture.writes().await;
    let kinds = [Kind::Session, Kind::Token, Kind::App];
    for (kind, loss) in kinds.into_iter().flat_map(|kind| [(kind, Loss::Credential), (kind, Loss::Role)]) {
        let mut senders = Vec::new();
        for write in writes.iter().filter(|write| write.wait == Wait::Body) {
            if let Some((sender, path)) = fixture.sender(write, kind).await
                && (loss == Loss::Credential || sender.role.is_some())
            {
                senders.push((write, sender, path));
            }
        }
        for senders in senders.chunks(SIMULTANEOUS) {
            reject_with_delayed_body(&fixture, senders, kind, loss).await;
        }
    }
}

async fn reject_with_delayed_body(fixture: &Fixture, senders: &[(&Write, Sender, String)], kind: Kind, loss: Loss) {
    let callers: Vec<&Sender> = senders.iter().map(|(_, sender, _)| sender).collect();
    fixture.forget_uses(kind, &callers).await;
    let before = (fixture.changes(&callers).await, fixture.payments.subscriptions());
    let mut streams = Vec::new();
    for (write, sender, path) in senders {
        streams.push(fixture.send(write, path, &sender.token).await);
    }
    fixture.wait_until_authorized(kind, &callers).await;
    join_all(callers.iter().map(|sender| fixture.revoke(sender, loss))).await;
    for ((write, ..), mut stream) in senders.iter().zip(streams) {
        stream.write_all(&write.body[write.body.len() - 1..]).await.unwrap();
        assert_eq!(response(stream).await, expected(write, loss), "{} with {kind:?}", write.route);
    }
    assert_eq!((fixture.changes(&callers).await, fixture.payments.subscriptions()), before);
}

/// The permission ends while the request waits for a lock.
#[tokio::test(flavor = "multi_thread")]
async fn write_that_waits_for_a_lock_is_rejected() {
    let fixture = Fixture::new().await;
    let writes = fixture.writes().await;
    let mut holder = Connection::establish(&fixture.app.database.url()).await.unwrap();
    for write in &writes {
        let all = [
            (Kind::Token, Loss::Role),
            (Kind::Session, Loss::Credential),
            (Kind::Token, Loss::Credential),
            (Kind::App, Loss::Credential),
        ];
        let (lock, cases) = match write.wait {
            Wait::Lock(lock) => (lock, &all[..]),
            // The test with a delayed body checks the other cases.
            Wait::Body => (AUDIT_LOCK, &all[..1]),
        };
        for (kind, loss) in cases {
            reject_while_waiting(&fixture, &mut holder, write, lock, *kind, *loss).await;
        }
    }
}

async fn reject_while_waiting(
    fixture: &Fixture,
    holder: &mut Connection,
    write: &Write,
    lock: &str,
    kind: Kind,
    loss: Loss,
) {
    let Some((sender, path)) = fixture.sender(write, kind).await else { return };
    if loss == Loss::Role && sender.role.is_none() {
        return;
    }
    let before = fixture.changes(&[&sender]).await;
    fixture.forget_uses(kind, &[&sender]).await;
    holder.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
    let mut stream = fixture.send(write, &path, &sender.token).await;
    stream.write_all(write.body.split_at(write.body.len().saturating_sub(1)).1).await.unwrap();
    wait_until_blocked(fixture, &stream, write.route, &sender).await;
    fixture.revoke(&sender, loss).await;
    holder.batch_execute("COMMIT").await.unwrap();
    let response = response(stream).await;
    assert_eq!(fixture.changes(&[&sender]).await, before, "{}", write.route);
    assert_eq!(response, expected(write, loss), "{} with {kind:?}", write.route);
}

/// Waits until the caller is authorized and a transaction waits for a lock, or the request has ended. The transaction can
/// be that of a background job. The request then waits for the same lock, or is about to.
async fn wait_until_blocked(fixture: &Fixture, stream: &TcpStream, route: &str, sender: &Sender) {
    let waiting = "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) \
                   WHERE NOT granted AND datname = current_database()";
    let what = format!("{route} waits");
    let blocked = async {
        fixture.wait_until_authorized(sender.kind, &[sender]).await;
        eventually(&what, async || (!fixture.app.db_rows(waiting).await.is_empty()).then_some(())).await;
    };
    tokio::select! {
        () = blocked => {}
        readable = stream.readable() => readable.unwrap(),
    }
}

/// Two sessions that end each other, two holders of tokens, and two admins who remove each other do not block each
/// other.
#[tokio::test(flavor = "multi_thread")]
async fn mutual_revocations_end_one_of_the_two() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    for round in 0..5 {
        let subject = format!("user-{round}");
        let (one, two) = (app.sign_in(&subject).await, app.sign_in(&subject).await);
        let sessions = one.get("/v1/me/sessions").await.expect(200)["items"].clone();
        let id = |current: bool| {
            let session = sessions.as_array().unwrap().iter().find(|session| session["current"] == current);
            session.unwrap()["id"].as_str().unwrap().to_owned()
        };
        let (end_two, end_one) = (format!("/v1/me/sessions/{}", id(false)), format!("/v1/me/sessions/{}", id(true)));
        let (first, second) = tokio::join!(one.delete(&end_two), two.delete(&end_one));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 401]);

        let (one, two) = (format!("one-{round}"), format!("two-{round}"));
        let one = app.add_member(&ada, "acme", &one, "admin").await;
        let two = app.add_member(&ada, "acme", &two, "admin").await;
        let path = |caller: &Caller| format!("/v1/orgs/acme/members/{}", caller.user_id);
        let (remove_two, remove_one) = (path(&two), path(&one));
        let (first, second) = tokio::join!(one.delete(&remove_two), two.delete(&remove_one));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 403]);
    }
}
