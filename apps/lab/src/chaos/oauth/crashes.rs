//! `kill -9` of the server and an immediate stop of Postgres, while apps create, refresh and revoke grants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use chaos::run_clients;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::Setup;
use crate::chaos::Outcome;
use crate::chaos::report::Finding;
use crate::chaos::rig::Rig;
use crate::connected_app::{ConnectedApp, Reply, Tokens};

const APPS: usize = 8;
/// The number of refreshes of a grant before it is revoked.
const REFRESHES: usize = 5;
/// The number of kills in a full run, of the server and of Postgres alternately.
const KILLS: usize = 12;

/// The acknowledged requests of an app.
#[derive(Default)]
pub struct Journal {
    pub acknowledged: usize,
    /// Requests without a response, or with 503.
    unanswered: usize,
    /// Grants whose last request was acknowledged.
    pub live: Vec<Tokens>,
    /// Tokens whose revocation was acknowledged.
    pub revoked: Vec<Tokens>,
    wrong: Vec<String>,
}

/// The effect of a request.
enum Answer {
    Tokens(Tokens),
    Revoked,
    /// The request may or may not have been executed.
    Unknown,
    Wrong(String),
}

pub async fn run(setup: &Setup, rig: &mut Rig, rounds: usize, outcome: &mut Outcome) -> Result<()> {
    let stopped = AtomicBool::new(false);
    let apps = (0..APPS).map(|_| use_grants(setup, Duration::ZERO, &stopped));
    let kills = (KILLS * rounds).div_ceil(3);
    let (journals, ()) = run_clients(join_all(apps), &stopped, rig.kill_repeatedly(kills)).await?;
    let (mut acknowledged, mut unanswered, mut live, mut revoked) = (0, 0, 0, 0);
    let before = outcome.violations.len();
    for journal in journals {
        check(&setup.app, &journal, outcome).await?;
        acknowledged += journal.acknowledged;
        unanswered += journal.unanswered;
        live += journal.live.len();
        revoked += journal.revoked.len();
    }
    ensure!(live > 0 && revoked > 0, "the apps created no grants");
    let violations = outcome.violations.len() - before;
    outcome.findings.push(Finding::new(
        "kill -9 of the server and of Postgres while apps create, refresh and revoke grants",
        "the last acknowledged refresh token of a grant can be used; no token can be used after an acknowledged \
         revocation",
        violations == 0,
        format!(
            "{kills} kills, {acknowledged} requests acknowledged, {unanswered} without a response; {live} grants in use \
             and {revoked} revoked afterwards, {violations} violations"
        ),
    ));
    Ok(())
}

/// Creates a grant, refreshes it and revokes it, until stopped, with a pause after each refresh. If a request gets no
/// response, the refresh token may have been used, so the app creates the next grant.
pub async fn use_grants(setup: &Setup, pause: Duration, stopped: &AtomicBool) -> Journal {
    let mut journal = Journal::default();
    while !stopped.load(Ordering::SeqCst) {
        let code = setup.app.code(&setup.session).await;
        let Ok(code) = code else {
            journal.unanswered += 1;
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Some(mut tokens) = journal.tokens(setup.app.exchange(&code).await) else { continue };
        let mut is_known = true;
        for _ in 0..REFRESHES {
            sleep(pause).await;
            if stopped.load(Ordering::SeqCst) {
                break;
            }
            match journal.tokens(setup.app.refresh(&tokens.refresh).await) {
                Some(next) => tokens = next,
                None => {
                    is_known = false;
                    break;
                }
            }
        }
        if !is_known {
            continue;
        }
        if stopped.load(Ordering::SeqCst) {
            journal.live.push(tokens);
            break;
        }
        match answer(setup.app.revoke(&tokens.refresh).await) {
            Answer::Revoked => {
                journal.acknowledged += 1;
                journal.revoked.push(tokens);
            }
            Answer::Unknown => journal.unanswered += 1,
            Answer::Tokens(_) => journal.wrong.push("a revocation returned tokens".to_owned()),
            Answer::Wrong(wrong) => journal.wrong.push(wrong),
        }
    }
    journal
}

impl Journal {
    /// Records the response to a request for tokens, and returns its tokens, if any.
    fn tokens(&mut self, reply: Result<Reply>) -> Option<Tokens> {
        match answer(reply) {
            Answer::Tokens(tokens) => {
                self.acknowledged += 1;
                Some(tokens)
            }
            Answer::Unknown => {
                self.unanswered += 1;
                None
            }
            Answer::Revoked => {
                self.wrong.push("an empty response of the token endpoint".to_owned());
                None
            }
            Answer::Wrong(wrong) => {
                self.wrong.push(wrong);
                None
            }
        }
    }
}

fn answer(reply: Result<Reply>) -> Answer {
    match reply {
        Ok(reply) if reply.status == 200 && reply.body.get("access_token").is_some() => {
            reply.tokens().map_or_else(|error| Answer::Wrong(error.to_string()), Answer::Tokens)
        }
        Ok(reply) if reply.status == 200 => Answer::Revoked,
        Ok(reply) if reply.status == 503 => Answer::Unknown,
        Ok(reply) => Answer::Wrong(format!("{}: {}", reply.status, reply.body)),
        // The connection broke, or the server does not listen yet, so the effect is unknown.
        Err(_) => Answer::Unknown,
    }
}

/// Uses the tokens of the journal.
pub async fn check(app: &ConnectedApp, journal: &Journal, outcome: &mut Outcome) -> Result<()> {
    outcome.violations.extend_from_slice(&journal.wrong);
    for tokens in &journal.revoked {
        if !app.is_dead(tokens).await? {
            outcome.violations.push("a token of a revoked grant can be used".to_owned());
        }
    }
    for tokens in &journal.live {
        let (access, refreshed) = (app.use_token(&tokens.access).await?, app.refresh(&tokens.refresh).await?);
        if access != 200 || refreshed.status != 200 {
            let problem = format!("acknowledged tokens return {access} and {}: {}", refreshed.status, refreshed.body);
            outcome.violations.push(problem);
        }
    }
    Ok(())
}
