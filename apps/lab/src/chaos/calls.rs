//! `kill -9` of the service in the middle of each kind of call to the outside: the other side says when it was called,
//! and leaves the call unanswered.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Client, Method};
use sandbox::{CodeHostFault, DnsFault, Endpoint, RecordType, SmtpFault};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::Outcome;
use super::report::Finding;
use super::rig::Rig;
use super::sign_in::sign_in;
use crate::bench::machine::free_address;
use crate::bench::server::answer;

/// A killed process had reserved a message for a minute.
const LEASE: Duration = Duration::from_secs(90);

pub async fn run() -> Result<Outcome> {
    let secondary = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let key = "xfr:hmac-sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned();
    let more = [
        ("SVC_DNS_LISTEN", free_address()?.to_string()),
        ("SVC_DNS_TSIG", key),
        ("SVC_DNS_SECONDARIES", secondary.local_addr()?.to_string()),
    ];
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&more).await?);
    let client = chaos::client()?;
    for page in [Endpoint::Token, Endpoint::User] {
        at_code_host(&mut rig, &client, page).await.with_context(|| format!("killed at the code host's {page:?}"))?;
    }
    at_resolver(&mut rig, &client).await.context("killed at the resolver's query")?;
    let start = Instant::now();
    at_mail(&mut rig, &client, SmtpFault::HangAfterMessage, "first").await.context("killed at DATA")?;
    at_mail(&mut rig, &client, SmtpFault::HangAtQuit, "second").await.context("killed at QUIT")?;
    at_notice(&mut rig, &client, &secondary).await.context("killed at NOTIFY")?;
    for address in ["first", "second"] {
        mail_again(&rig, address).await?;
    }
    notice(&secondary, LEASE).await.context("the notice does not come again")?;
    let again = start.elapsed();
    let mails = rig.smtp.0.received();
    let most = ["first", "second"].map(|name| mails.iter().filter(|mail| mail.to == [to(name)]).count());
    rig.look(&mut outcome).await?;
    outcome.findings.push(Finding::new(
        "kill -9 at every outside call",
        "nothing lost, nothing half done; mail and notices at least once, at most one duplicate for each death",
        outcome.wrong.is_empty() && most.iter().all(|count| *count == 2),
        format!(
            "killed at the code host's token and user, at the resolver's query, at SMTP's DATA and QUIT, at NOTIFY: each succeeds \
             afterwards; what was on its way is delivered again within {:.0} s of the first death, with the same id",
            again.as_secs_f64()
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Waits until the other side has been called, then kills and starts again.
async fn die_once(rig: &mut Rig, called: impl Fn(&Rig) -> bool) -> Result<()> {
    let start = Instant::now();
    while !called(rig) {
        ensure!(start.elapsed() < Duration::from_secs(10), "the call does not come");
        sleep(Duration::from_millis(5)).await;
    }
    rig.service.kill().await?;
    rig.service.start_again().await.map(drop)
}

async fn at_code_host(rig: &mut Rig, client: &Client, page: Endpoint) -> Result<()> {
    let path = if page == Endpoint::Token { "POST /login/oauth/access_token" } else { "GET /user" };
    let asked = |rig: &Rig| rig.code_host.0.requested().iter().filter(|line| *line == path).count();
    let before = asked(rig);
    rig.code_host.0.inject(page, Some(CodeHostFault::Hang));
    let (base, other) = (rig.service.base(), client.clone());
    let given_up = tokio::spawn(async move { sign_in(&other, &base).await });
    die_once(rig, |rig| asked(rig) > before).await?;
    ensure!(given_up.await?.is_err(), "a sign-in without an answer succeeded");
    rig.code_host.0.inject(page, None);
    let outcome = sign_in(client, &rig.service.base()).await?;
    ensure!(outcome.starts_with("token="), "the next sign-in ends with {outcome}");
    Ok(())
}

async fn at_resolver(rig: &mut Rig, client: &Client) -> Result<()> {
    let name = "www.calls.example.net";
    let claim = post(rig, client, "projects/site/hostnames", json!({ "name": name })).await?;
    let token = claim.get("verificationToken").and_then(Value::as_str).context("no token")?.to_owned();
    let proof = format!("_svc-verify.{name}");
    rig.resolver.inject(Some(DnsFault::Silent));
    let before = rig.resolver.queries(&proof, RecordType::TXT);
    let verify =
        request(rig, client, Method::POST, &format!("projects/site/hostnames/{name}/verify"))?.json(&json!({}));
    let given_up = tokio::spawn(verify.send());
    die_once(rig, |rig| rig.resolver.queries(&proof, RecordType::TXT) > before).await?;
    ensure!(given_up.await?.is_err(), "a look without an answer was answered");
    rig.resolver.inject(None);
    rig.resolver.set(&proof, RecordType::TXT, &[&format!("svc-verify={token}")]);
    let seen = post(rig, client, &format!("projects/site/hostnames/{name}/verify"), json!({})).await?;
    ensure!(seen.get("state").is_some_and(|state| state == "active"), "{seen}");
    Ok(())
}

fn to(name: &str) -> String {
    format!("{name}@calls.example.net")
}

async fn at_mail(rig: &mut Rig, client: &Client, trouble: SmtpFault, name: &str) -> Result<()> {
    rig.smtp.0.inject(Some(trouble));
    post(rig, client, "invites", json!({ "email": to(name), "role": "viewer" })).await?;
    let address = to(name);
    die_once(rig, |rig| rig.smtp.0.received().iter().any(|mail| mail.to == [address.as_str()])).await?;
    rig.smtp.0.inject(None);
    Ok(())
}

/// Waits for the duplicate, by which it can be told.
async fn mail_again(rig: &Rig, name: &str) -> Result<()> {
    let (start, address) = (Instant::now(), to(name));
    let ids = loop {
        let mails = rig.smtp.0.received().into_iter().filter(|mail| mail.to == [address.as_str()]);
        let ids: Vec<String> = mails.map(|mail| message_id(&mail.raw)).collect();
        if ids.len() > 1 {
            break ids;
        }
        ensure!(start.elapsed() < LEASE, "the mail to {address} does not come again");
        sleep(Duration::from_millis(100)).await;
    };
    ensure!(ids.windows(2).all(|pair| pair.first() == pair.last()), "a duplicate cannot be told: {ids:?}");
    Ok(())
}

fn message_id(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    text.lines().find(|line| line.starts_with("Message-ID:")).unwrap_or_default().to_owned()
}

async fn at_notice(rig: &mut Rig, client: &Client, secondary: &UdpSocket) -> Result<()> {
    // Those of what was made before were left unanswered.
    while timeout(Duration::from_millis(1), secondary.recv(&mut [0; 512])).await.is_ok() {}
    post(rig, client, "dns/zones", json!({ "name": "calls.example.net" })).await?;
    let path = "dns/zones/calls.example.net/rrsets/www/A";
    let put = request(rig, client, Method::PUT, path)?.json(&json!({ "records": ["192.0.2.1"] }));
    answer(put.send().await?).await?;
    notice(secondary, Duration::from_secs(10)).await?;
    rig.service.kill().await?;
    while timeout(Duration::from_millis(1), secondary.recv(&mut [0; 512])).await.is_ok() {}
    rig.service.start_again().await.map(drop)
}

/// Waits for a NOTIFY (RFC 1996) about the zone.
async fn notice(secondary: &UdpSocket, patience: Duration) -> Result<()> {
    const NOTIFY: u8 = 4;
    let about = b"\x05calls\x07example\x03net\x00";
    let told = async {
        let mut packet = [0; 512];
        loop {
            let length = secondary.recv(&mut packet).await?;
            let packet = packet.get(..length).unwrap_or_default();
            let is_notice = packet.get(2).is_some_and(|flags| flags >> 3 & 0xf == NOTIFY);
            if is_notice && packet.windows(about.len()).any(|window| window == about) {
                return Ok(());
            }
        }
    };
    timeout(patience, told).await.context("no notice")?
}

fn request(rig: &Rig, client: &Client, method: Method, path: &str) -> Result<reqwest::RequestBuilder> {
    let (token, org) = rig.caller(0)?;
    Ok(client.request(method, format!("{}/v1/orgs/{org}/{path}", rig.service.base())).bearer_auth(token))
}

async fn post(rig: &Rig, client: &Client, path: &str, body: Value) -> Result<Value> {
    answer(request(rig, client, Method::POST, path)?.json(&body).send().await?).await
}
