//! Concurrent requests with the same code or token, and requests while a grant or an app is ended.
//!
//! A request may wait for a lock of another one, and get 503 after a second if the disk is slow. As a client does, the app
//! then repeats the request, and the final results must be the same.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::future::join_all;
use tokio::time::sleep;

use super::Setup;
use crate::chaos::Outcome;
use crate::chaos::report::Finding;
use crate::connected_app::{ConnectedApp, Reply, Tokens};
use crate::random;

/// The number of rounds of each race in a full run.
const ROUNDS: usize = 1000;
/// The number of concurrent requests in a round.
const REQUESTS: usize = 20;
/// The removal of an app starts within this time after the authorization request, in microseconds.
const MAX_DELAY: u64 = 8000;

/// The results of all rounds of a race.
#[derive(Default)]
struct Results {
    /// Successful requests of the raced kind.
    winners: usize,
    /// Requests that were repeated after a 503.
    repeated: usize,
    /// Descriptions of the rounds whose results differ from the documentation.
    wrong: Vec<String>,
}

pub async fn run(setup: &Setup, rounds: usize, outcome: &mut Outcome) -> Result<()> {
    let (rounds, setup) = ((ROUNDS * rounds).div_ceil(3), &setup.repeating());
    let (mut codes, mut refreshes) = (Results::default(), Results::default());
    let (mut revocations, mut removals) = (Results::default(), Results::default());
    for _ in 0..rounds {
        exchange_one_code(setup, &mut codes).await.context("exchanges of one code")?;
        codes.repeated += setup.app.take_repetitions();
        refresh_one_token(setup, &mut refreshes).await.context("refreshes of one token")?;
        refreshes.repeated += setup.app.take_repetitions();
        refresh_and_revoke(setup, &mut revocations).await.context("a refresh and a revocation")?;
        revocations.repeated += setup.app.take_repetitions();
        authorize_and_remove(setup, &mut removals).await.context("an authorization and a removal")?;
        removals.repeated += setup.app.take_repetitions();
    }
    let races = [
        (
            "20 concurrent exchanges of one authorization code",
            "one succeeds, the others return invalid_grant; the reuse ends the grant of the first",
            codes,
        ),
        (
            "20 concurrent refreshes with one refresh token",
            "one succeeds, the others return invalid_grant; the reuse ends the grant with its access tokens",
            refreshes,
        ),
        ("a refresh against a revocation of its grant", "no token of the grant can be used afterwards", revocations),
        (
            "an authorization and its exchange against the removal of the app",
            "no code, grant or token remains",
            removals,
        ),
    ];
    for (scenario, target, Results { winners, repeated, wrong }) in races {
        let differing = wrong.len();
        let measured = format!(
            "{rounds} rounds, {winners} requests succeeded, {repeated} repeated after a 503, {differing} rounds differ"
        );
        outcome.findings.push(Finding::new(scenario, target, wrong.is_empty(), measured));
        outcome.violations.extend(wrong.into_iter().map(|wrong| format!("{scenario}: {wrong}")));
    }
    Ok(())
}

async fn exchange_one_code(setup: &Setup, results: &mut Results) -> Result<()> {
    let code = setup.app.code(&setup.session).await?;
    let replies = join_all((0..REQUESTS).map(|_| setup.app.exchange(&code))).await;
    expect_one_winner(&setup.app, replies, results).await
}

async fn refresh_one_token(setup: &Setup, results: &mut Results) -> Result<()> {
    let tokens = setup.app.sign_in(&setup.session).await?;
    let replies = join_all((0..REQUESTS).map(|_| setup.app.refresh(&tokens.refresh))).await;
    expect_one_winner(&setup.app, replies, results).await?;
    if !setup.app.is_dead(&tokens).await? {
        results.wrong.push("the access token before the refresh can be used".to_owned());
    }
    Ok(())
}

/// Checks that exactly one reply has tokens, and that these tokens are invalid after the other requests.
async fn expect_one_winner(app: &ConnectedApp, replies: Vec<Result<Reply>>, results: &mut Results) -> Result<()> {
    let mut winners = Vec::new();
    for reply in replies {
        let reply = reply?;
        match reply.status {
            200 => winners.push(reply.tokens()?),
            _ if reply.is_error("invalid_grant") => {}
            status => results.wrong.push(format!("a request returned {status}: {}", reply.body)),
        }
    }
    if winners.len() != 1 {
        results.wrong.push(format!("{} requests succeeded", winners.len()));
    }
    results.winners += winners.len();
    expect_dead(app, &winners, results).await
}

async fn expect_dead(app: &ConnectedApp, all: &[Tokens], results: &mut Results) -> Result<()> {
    for tokens in all {
        if !app.is_dead(tokens).await? {
            results.wrong.push("a token of the ended grant can be used".to_owned());
        }
    }
    Ok(())
}

async fn refresh_and_revoke(setup: &Setup, results: &mut Results) -> Result<()> {
    let before = setup.app.sign_in(&setup.session).await?;
    let (refreshed, revoked) = tokio::join!(setup.app.refresh(&before.refresh), setup.app.revoke(&before.refresh));
    let (refreshed, revoked) = (refreshed?, revoked?);
    if revoked.status != 200 {
        results.wrong.push(format!("the revocation returned {}: {}", revoked.status, revoked.body));
    }
    let mut issued = vec![before];
    match refreshed.status {
        200 => issued.push(refreshed.tokens()?),
        _ if refreshed.is_error("invalid_grant") => {}
        status => results.wrong.push(format!("the refresh returned {status}: {}", refreshed.body)),
    }
    results.winners += issued.len() - 1;
    expect_dead(&setup.app, &issued, results).await
}

async fn authorize_and_remove(setup: &Setup, results: &mut Results) -> Result<()> {
    let app = setup.app.register_another(&setup.store).await?;
    let sign_in = async {
        let authorized = app.authorize(&setup.session).await?;
        if authorized.status != 200 {
            return anyhow::Ok((authorized, None));
        }
        let exchanged = app.exchange(&authorized.code()?).await?;
        Ok((authorized, Some(exchanged)))
    };
    let remove = async {
        sleep(Duration::from_micros(random::number(0..MAX_DELAY))).await;
        app.remove(&setup.store).await
    };
    let (signed_in, removed) = tokio::join!(sign_in, remove);
    removed?;
    let (authorized, exchanged) = signed_in?;
    // If the app is unknown, the request itself fails, because the browser must not be redirected.
    let is_unknown = authorized.status == 400 && authorized.body.get("code").is_some_and(|code| code == "bad_request");
    if authorized.status != 200 && !is_unknown {
        results.wrong.push(format!("the authorization returned {}: {}", authorized.status, authorized.body));
    }
    let mut issued = Vec::new();
    match exchanged {
        Some(reply) if reply.status == 200 => issued.push(reply.tokens()?),
        // The client is unknown, or its code was deleted with the client.
        Some(reply) if reply.status == 401 || reply.is_error("invalid_grant") || reply.is_error("invalid_client") => {}
        Some(reply) => results.wrong.push(format!("the exchange returned {}: {}", reply.status, reply.body)),
        None => {}
    }
    results.winners += issued.len();
    for tokens in issued {
        let (access, refreshed) = (app.use_token(&tokens.access).await?, app.refresh(&tokens.refresh).await?);
        let is_unknown = refreshed.status == 401 || refreshed.is_error("invalid_client");
        if access != 401 || !is_unknown {
            results.wrong.push(format!("after the removal: {access} and {}", refreshed.status));
        }
    }
    Ok(())
}
