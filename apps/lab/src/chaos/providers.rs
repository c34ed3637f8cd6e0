//! Mail, code host and name server, each away, hanging, and answering what is not asked for.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chaos::Passage;
use reqwest::Client;
use sandbox::{CodeHostFault, DnsFault, Endpoint, SmtpFault};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::report::Finding;
use super::rig::{Rig, Watch};
use super::sign_in::sign_in;
use super::{Outcome, wire};
use crate::bench::server::answer;

/// How each of them fails.
const WAYS: [Way; 3] = [Way::Away, Way::Hangs, Way::Html];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Away,
    Hangs,
    Html,
}

/// The longest wait, and what was not as documented.
#[derive(Default)]
struct Seen {
    longest: Duration,
    wrong: Vec<String>,
}

pub async fn run() -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let client = chaos::client()?;
    let others = Watch::start(rig.service.api, rig.request("GET", "/v1/me", "")?);
    let no_op = Watch::no_op(rig.service.api);
    let (mut code_host, mut resolver) = (Seen::default(), Seen::default());
    let claim = post(&rig, &client, "projects/site/hostnames", json!({ "name": "www.providers.example.net" })).await?;
    claim.get("verificationToken").context("no token")?;
    for way in WAYS {
        at_code_host(&rig, &client, way, &mut code_host).await?;
        at_resolver(&rig, &client, way, &mut resolver).await?;
    }
    let mail = mail(&rig, &client).await?;
    let (others, no_op) = (others.end().await?, no_op.end().await?);
    rig.look(&mut outcome).await?;
    let failed = wire::count(&others, |status| status != 200);
    let longest = code_host.longest.max(resolver.longest).max(mail.longest);
    let wrong: Vec<String> = [code_host.wrong, resolver.wrong, mail.wrong].concat();
    outcome.findings.push(Finding::new(
        "a provider is down, hangs, answers HTML",
        "the documented code within 10 s; other routes unaffected",
        wrong.is_empty() && failed == 0 && longest <= Duration::from_secs(10),
        format!(
            "mail, code host and name server, each in three ways: the documented answer within {:.1} s, otherwise {wrong:?}; mail that \
             waited went out once it could; {failed} of {} requests to other routes failed, p99 {:.1} ms; no-op {:.1} ms",
            longest.as_secs_f64(),
            others.len(),
            wire::quantile(&others, 99, |_| true),
            wire::quantile(&no_op, 99, |_| true),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

impl Seen {
    fn note(&mut self, since: Instant, is: &str, expected: &str) {
        self.longest = self.longest.max(since.elapsed());
        if !is.contains(expected) {
            self.wrong.push(format!("{is} in place of {expected}"));
        }
    }
}

async fn at_code_host(rig: &Rig, client: &Client, way: Way, seen: &mut Seen) -> Result<()> {
    for page in [Endpoint::Token, Endpoint::User] {
        let (host, proxy) = &rig.code_host;
        match way {
            Way::Away => proxy.set(Passage::Cut),
            Way::Hangs if page == Endpoint::Token => proxy.set(Passage::Hole),
            Way::Hangs => host.inject(page, Some(CodeHostFault::Hang)),
            Way::Html => host.inject(page, Some(CodeHostFault::Html)),
        }
        let since = Instant::now();
        let ended = sign_in(client, &rig.service.base()).await?;
        seen.note(since, &ended, "error=codehost_unavailable");
        proxy.set(Passage::Open);
        host.inject(page, None);
    }
    let ended = sign_in(client, &rig.service.base()).await?;
    seen.note(Instant::now(), ended.split('=').next().unwrap_or_default(), "token");
    Ok(())
}

async fn at_resolver(rig: &Rig, client: &Client, way: Way, seen: &mut Seen) -> Result<()> {
    rig.resolver.inject(Some(match way {
        Way::Away => DnsFault::Refused,
        Way::Hangs => DnsFault::Silent,
        Way::Html => DnsFault::Garbage,
    }));
    let since = Instant::now();
    let look = post(rig, client, "projects/site/hostnames/www.providers.example.net/verify", json!({})).await?;
    let (state, error) = (look.get("state").and_then(Value::as_str), look.get("lastError").and_then(Value::as_str));
    seen.note(
        since,
        &format!("{} {}", state.unwrap_or_default(), error.map_or("", |_| "and why")),
        "pending_dns and why",
    );
    rig.resolver.inject(None);
    Ok(())
}

/// Mail is not waited for: the answer is there at once, and the mail once it can be.
async fn mail(rig: &Rig, client: &Client) -> Result<Seen> {
    let (server, proxy) = &rig.smtp;
    let mut seen = Seen::default();
    for way in WAYS {
        match way {
            Way::Away => proxy.set(Passage::Cut),
            Way::Hangs => proxy.set(Passage::Hole),
            Way::Html => server.inject(Some(SmtpFault::NotSmtp)),
        }
        let since = Instant::now();
        let address = format!("{way:?}@providers.example.net");
        let invite = post(rig, client, "invites", json!({ "email": address, "role": "viewer" })).await?;
        seen.note(since, if invite.get("id").is_some() { "invited" } else { "no id" }, "invited");
        sleep(Duration::from_millis(500)).await;
        proxy.set(Passage::Open);
        server.inject(None);
    }
    let since = Instant::now();
    let arrived = |way: &Way| {
        let address = format!("{way:?}@providers.example.net");
        server.received().iter().any(|mail| mail.to.iter().any(|to| to.eq_ignore_ascii_case(&address)))
    };
    while !WAYS.iter().all(arrived) {
        if since.elapsed() > Duration::from_secs(60) {
            seen.wrong.push("a mail that never went out".to_owned());
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(seen)
}

async fn post(rig: &Rig, client: &Client, path: &str, body: Value) -> Result<Value> {
    let (token, org) = rig.caller(0)?;
    let path = format!("{}/v1/orgs/{org}/{path}", rig.service.base());
    answer(client.post(path).bearer_auth(token).json(&body).send().await?).await
}
