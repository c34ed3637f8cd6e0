//! `kill -9` of the service during each kind of outbound call. The called server reports the call and sends no
//! response.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Client, Method};
use sandbox::{DnsFault, Endpoint, RecordType, ResponseFault, SmtpFault};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::Outcome;
use super::report::Finding;
use super::rig::Rig;
use super::sign_in::sign_in;
use crate::bench::server::success_json;
use testkit::reserved_dns_address;

/// The longest wait for a redelivery: a killed process holds its outbox messages for one minute.
const REDELIVERY_TIMEOUT: Duration = Duration::from_secs(90);

pub async fn run() -> Result<Outcome> {
    let secondary = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let key = "xfr:hmac-sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned();
    let more = [
        ("SVC_DNS_LISTEN", reserved_dns_address().to_string()),
        ("SVC_DNS_TSIG", key),
        ("SVC_DNS_SECONDARIES", secondary.local_addr()?.to_string()),
    ];
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&more).await?);
    let client = chaos::client()?;
    for endpoint in [Endpoint::Token, Endpoint::User] {
        let killed = kill_at_code_host(&mut rig, &client, endpoint).await;
        killed.with_context(|| format!("killed during the code host's {endpoint:?} request"))?;
    }
    kill_at_resolver(&mut rig, &client).await.context("killed during the resolver query")?;
    let start = Instant::now();
    kill_at_mail(&mut rig, &client, SmtpFault::HangAfterMessage, "first").await.context("killed during DATA")?;
    kill_at_mail(&mut rig, &client, SmtpFault::HangAtQuit, "second").await.context("killed during QUIT")?;
    kill_at_notify(&mut rig, &client, &secondary).await.context("killed during NOTIFY")?;
    for address in ["first", "second"] {
        wait_for_duplicate_mail(&rig, address).await?;
    }
    wait_for_notify(&secondary, REDELIVERY_TIMEOUT).await.context("no NOTIFY was sent again")?;
    let redelivered = start.elapsed();
    let mails = rig.smtp.0.received();
    let deliveries =
        ["first", "second"].map(|name| mails.iter().filter(|mail| mail.to == [mail_address(name)]).count());
    rig.verify(&mut outcome).await?;
    outcome.findings.push(Finding::new(
        "kill -9 during each kind of outbound call",
        "nothing lost or incomplete; mail and NOTIFY at least once, at most one duplicate per kill",
        outcome.violations.is_empty() && deliveries.iter().all(|count| *count == 2),
        format!(
            "killed during the code host's token and user requests, the resolver query, SMTP DATA and QUIT, and \
             NOTIFY: each operation succeeds afterwards; messages in flight are redelivered within {:.0} s of the \
             first kill, with the same id",
            redelivered.as_secs_f64()
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Waits until the call has reached the called system, then kills and restarts the service.
async fn kill_and_restart_when(rig: &mut Rig, called: impl Fn(&Rig) -> bool) -> Result<()> {
    let start = Instant::now();
    while !called(rig) {
        ensure!(start.elapsed() < Duration::from_secs(10), "the service did not make the call");
        sleep(Duration::from_millis(5)).await;
    }
    rig.service.kill().await?;
    rig.service.restart().await.map(drop)
}

async fn kill_at_code_host(rig: &mut Rig, client: &Client, endpoint: Endpoint) -> Result<()> {
    let path = if endpoint == Endpoint::Token { "POST /login/oauth/access_token" } else { "GET /user" };
    let requests = |rig: &Rig| rig.code_host.0.requests().iter().filter(|line| *line == path).count();
    let before = requests(rig);
    rig.code_host.0.inject(endpoint, Some(ResponseFault::Hang));
    let (base, other) = (rig.service.base(), client.clone());
    let interrupted = tokio::spawn(async move { sign_in(&other, &base).await });
    kill_and_restart_when(rig, |rig| requests(rig) > before).await?;
    ensure!(interrupted.await?.is_err(), "the interrupted sign-in succeeded");
    rig.code_host.0.inject(endpoint, None);
    let outcome = sign_in(client, &rig.service.base()).await?;
    ensure!(outcome.starts_with("token="), "the next sign-in failed: {outcome}");
    Ok(())
}

async fn kill_at_resolver(rig: &mut Rig, client: &Client) -> Result<()> {
    let name = "www.calls.example.net";
    let claim = rig.post(client, "projects/site/hostnames", json!({ "name": name })).await?;
    let token = claim.get("verificationToken").and_then(Value::as_str).context("no token")?.to_owned();
    let proof = format!("_svc-verify.{name}");
    rig.resolver.inject(Some(DnsFault::Silent));
    let before = rig.resolver.queries(&proof, RecordType::TXT);
    let verify =
        rig.org_request(client, Method::POST, &format!("projects/site/hostnames/{name}/verify"))?.json(&json!({}));
    let interrupted = tokio::spawn(verify.send());
    kill_and_restart_when(rig, |rig| rig.resolver.queries(&proof, RecordType::TXT) > before).await?;
    ensure!(interrupted.await?.is_err(), "the interrupted verification returned a response");
    rig.resolver.inject(None);
    rig.resolver.set(&proof, RecordType::TXT, &[&format!("svc-verify={token}")]);
    let hostname = rig.post(client, &format!("projects/site/hostnames/{name}/verify"), json!({})).await?;
    ensure!(hostname.get("state").is_some_and(|state| state == "active"), "{hostname}");
    Ok(())
}

fn mail_address(name: &str) -> String {
    format!("{name}@calls.example.net")
}

async fn kill_at_mail(rig: &mut Rig, client: &Client, fault: SmtpFault, name: &str) -> Result<()> {
    rig.smtp.0.inject(Some(fault));
    rig.post(client, "invites", json!({ "email": mail_address(name), "role": "viewer" })).await?;
    let address = mail_address(name);
    kill_and_restart_when(rig, |rig| rig.smtp.0.received().iter().any(|mail| mail.to == [address.as_str()])).await?;
    rig.smtp.0.inject(None);
    Ok(())
}

/// Waits for the duplicate and checks that it has the same message id.
async fn wait_for_duplicate_mail(rig: &Rig, name: &str) -> Result<()> {
    let (start, address) = (Instant::now(), mail_address(name));
    let ids = loop {
        let mails = rig.smtp.0.received().into_iter().filter(|mail| mail.to == [address.as_str()]);
        let ids: Vec<String> = mails.map(|mail| message_id(&mail.raw)).collect();
        if ids.len() > 1 {
            break ids;
        }
        ensure!(start.elapsed() < REDELIVERY_TIMEOUT, "the mail to {address} was not sent again");
        sleep(Duration::from_millis(100)).await;
    };
    ensure!(
        ids.windows(2).all(|pair| pair.first() == pair.last()),
        "the duplicates have different message ids: {ids:?}"
    );
    Ok(())
}

fn message_id(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    text.lines().find(|line| line.starts_with("Message-ID:")).unwrap_or_default().to_owned()
}

async fn kill_at_notify(rig: &mut Rig, client: &Client, secondary: &UdpSocket) -> Result<()> {
    // Discard the unanswered NOTIFY messages of earlier changes.
    while timeout(Duration::from_millis(1), secondary.recv(&mut [0; 512])).await.is_ok() {}
    rig.post(client, "dns/zones", json!({ "name": "calls.example.net" })).await?;
    let path = "dns/zones/calls.example.net/rrsets/www/A";
    let put = rig.org_request(client, Method::PUT, path)?.json(&json!({ "records": ["192.0.2.1"] }));
    success_json(put.send().await?).await?;
    wait_for_notify(secondary, Duration::from_secs(10)).await?;
    rig.service.kill().await?;
    while timeout(Duration::from_millis(1), secondary.recv(&mut [0; 512])).await.is_ok() {}
    rig.service.restart().await.map(drop)
}

/// Waits for a NOTIFY (RFC 1996) about the zone.
async fn wait_for_notify(secondary: &UdpSocket, limit: Duration) -> Result<()> {
    const NOTIFY: u8 = 4;
    let zone = b"\x05calls\x07example\x03net\x00";
    let received = async {
        let mut packet = [0; 512];
        loop {
            let length = secondary.recv(&mut packet).await?;
            let packet = packet.get(..length).unwrap_or_default();
            let is_notify = packet.get(2).is_some_and(|flags| flags >> 3 & 0xf == NOTIFY);
            if is_notify && packet.windows(zone.len()).any(|window| window == zone) {
                return Ok(());
            }
        }
    };
    timeout(limit, received).await.context("no NOTIFY was received")?
}
