//! Concurrent requests for one code, one token, one grant and one client. The lab repeats the races more often.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::json;

use super::kit::{Client, Tokens, clients, expect_rejected, grants, operator, public, register};
use crate::support::{ApiResponse, App, Caller};

const ROUNDS: usize = 10;
const CONCURRENT: usize = 20;

/// Two servers on one database, a user and a client.
async fn setup() -> (App, App, Caller, Client) {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    (app, other, ada, client)
}

/// Repeats a request while the server is busy: on a busy machine, it may wait too long for a row that others lock.
async fn until_served(send: impl AsyncFn() -> ApiResponse) -> ApiResponse {
    loop {
        let response = send().await;
        if response.status != 503 {
            return response;
        }
    }
}

/// Separates the successful responses from the others, which must all be `invalid_grant`.
fn winners(responses: &[ApiResponse]) -> Vec<Tokens> {
    let (won, lost): (Vec<_>, Vec<_>) = responses.iter().partition(|response| response.status == 200);
    for response in lost {
        assert_eq!((response.status, &response.body["error"]), (400, &json!("invalid_grant")), "{response:?}");
    }
    won.into_iter().map(Tokens::of).collect()
}

/// Asserts that no code or token of the grant works any longer.
async fn assert_ended(app: &App, client: &Client, user: &Caller, tokens: &Tokens) {
    expect_rejected(app, &tokens.access).await;
    let refreshed = client.refresh(&tokens.refresh).await;
    assert_eq!((refreshed.status, &refreshed.body["error"]), (400, &json!("invalid_grant")));
    assert!(!grants(user).await.contains(&tokens.sid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_twenty_exchanges_wins_and_the_losers_end_the_grant() {
    let (app, other, ada, client) = setup().await;
    for _ in 0..ROUNDS {
        let code = client.code(&ada).await;
        let callers: Vec<_> = (0..CONCURRENT).map(|n| client.at(if n % 2 == 0 { &app } else { &other })).collect();
        let responses =
            join_all(callers.iter().map(async |client| until_served(async || client.exchange(&code).await).await))
                .await;
        let won = winners(&responses);
        assert_eq!(won.len(), 1, "{responses:?}");
        assert_ended(&app, &client, &ada, &won[0]).await;
    }
    let counts = app
        .db_rows("SELECT event, count(*) FROM store.audit WHERE event LIKE 'oauth.grant.%' GROUP BY 1 ORDER BY 1")
        .await;
    let count = |event: &str| json!({ "event": event, "count": ROUNDS });
    assert_eq!(counts, [count("oauth.grant.create"), count("oauth.grant.revoke")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_twenty_refreshes_wins_and_the_losers_end_the_grant() {
    let (app, other, ada, client) = setup().await;
    for _ in 0..ROUNDS {
        let tokens = client.sign_in(&ada).await;
        let callers: Vec<_> = (0..CONCURRENT).map(|n| client.at(if n % 2 == 0 { &app } else { &other })).collect();
        let refresh = &tokens.refresh;
        let responses =
            join_all(callers.iter().map(async |client| until_served(async || client.refresh(refresh).await).await))
                .await;
        let won = winners(&responses);
        assert_eq!(won.len(), 1, "{responses:?}");
        assert_ended(&app, &client, &ada, &won[0]).await;
        assert_ended(&app, &client, &ada, &tokens).await;
    }
}

/// Within the grace period, all refreshes return the same successor.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_refreshes_within_the_grace_get_one_successor() {
    let app = App::with(|config| config.oauth.as_mut().unwrap().refresh_grace_seconds = 60).await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    for _ in 0..ROUNDS {
        let tokens = client.sign_in(&ada).await;
        let refresh = async || client.refresh(&tokens.refresh).await;
        let responses = join_all((0..CONCURRENT).map(|_| until_served(&refresh))).await;
        let won = winners(&responses);
        assert_eq!(won.len(), CONCURRENT);
        let successors: BTreeSet<_> = won.iter().map(|tokens| tokens.refresh.clone()).collect();
        assert_eq!(successors.len(), 1);
        Tokens::of(&client.refresh(successors.first().unwrap()).await);
    }
}

/// In whatever order a refresh and the end of its grant are executed, no token of the grant is valid afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn refresh_that_races_a_revocation_leaves_nothing_alive() {
    let (app, other, ada, client) = setup().await;
    for round in 0..ROUNDS {
        let tokens = client.sign_in(&ada).await;
        let (refresh, at_other) = (client.refresh(&tokens.refresh), client.at(&other));
        let refreshed = match round % 3 {
            0 => tokio::join!(refresh, at_other.revoke(&tokens.access)),
            1 => tokio::join!(refresh, at_other.revoke(&tokens.refresh)),
            _ => {
                let path = format!("/v1/oauth/grants/{}", tokens.sid());
                let ada = other.connect(&ada);
                tokio::join!(refresh, async { ada.delete(&path).await })
            }
        };
        let (refreshed, revoked) = refreshed;
        assert!([200, 204].contains(&revoked.status), "{revoked:?}");
        for won in winners(&[refreshed]) {
            assert_ended(&app, &client, &ada, &won).await;
        }
        assert_ended(&app, &client, &ada, &tokens).await;
        let live =
            "SELECT token_hash FROM oauth.refresh_tokens JOIN oauth.grants ON grants.id = refresh_tokens.grant_id";
        assert!(app.db_rows(live).await.is_empty());
    }
}

/// An authorization request that races the removal of its client yields no valid code or token.
#[tokio::test(flavor = "multi_thread")]
async fn authorization_that_races_the_removal_of_the_client_yields_nothing() {
    let (app, other, ada, _) = setup().await;
    for _ in 0..ROUNDS {
        let client = register(&app, public()).await;
        let service = clients(&app);
        let flow = async {
            let response = client.at(&other).authorize(&ada, json!({})).await;
            if response.status != 200 {
                response.expect_error(400, "bad_request");
                return None;
            }
            let redirect = url::Url::parse(response.body["redirect"].as_str().unwrap()).unwrap();
            let code = redirect.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
            let exchanged = client.exchange(&code).await;
            if exchanged.status != 200 {
                let error = exchanged.expect(400)["error"].as_str().unwrap();
                assert!(["invalid_client", "invalid_grant"].contains(&error), "{error}");
                return None;
            }
            Some(Tokens::of(&exchanged))
        };
        let operator = operator();
        let (tokens, removed) = tokio::join!(flow, service.remove(&operator, client.id()));
        removed.unwrap();
        if let Some(tokens) = tokens {
            expect_rejected(&app, &tokens.access).await;
            assert_eq!(client.refresh(&tokens.refresh).await.expect(400)["error"], "invalid_client");
        }
        for table in
            ["clients", "codes", "grants", "refresh_tokens JOIN oauth.grants ON grants.id = refresh_tokens.grant_id"]
        {
            let rows = app.db_rows(&format!("SELECT count(*) FROM oauth.{table}")).await;
            let kept = usize::from(table == "clients");
            assert_eq!(rows[0]["count"], kept, "{table}");
        }
    }
}

/// Two operators rotate the signing key concurrently. One of the rotations is rejected.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_rotations_is_refused() {
    let (app, ..) = setup().await;
    let keys = super::kit::signing_keys(&app);
    crate::support::eventually("the first key exists", async || {
        (!app.db_rows("SELECT id FROM oauth.signing_keys").await.is_empty()).then_some(())
    })
    .await;
    let operator = operator();
    let results = join_all((0..4).map(|_| keys.rotate(&operator))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert_eq!(app.db_rows("SELECT id FROM oauth.signing_keys").await.len(), 2);
}
