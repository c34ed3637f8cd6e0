//! Mail server, code host and resolver: unreachable, unresponsive, and returning invalid responses.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chaos::NetworkFault;
use reqwest::Client;
use sandbox::{DnsFault, Endpoint, ResponseFault, SmtpFault};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::report::Finding;
use super::rig::{RequestProbe, Rig};
use super::sign_in::sign_in;
use super::{Outcome, load};

/// The faults of each provider.
const PROVIDER_FAULTS: [ProviderFault; 3] =
    [ProviderFault::Unreachable, ProviderFault::Unresponsive, ProviderFault::InvalidResponse];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProviderFault {
    Unreachable,
    Unresponsive,
    InvalidResponse,
}

/// The longest wait of the requests, and the responses other than the documented ones.
#[derive(Default)]
struct Measurement {
    longest_wait: Duration,
    unexpected: Vec<String>,
}

pub async fn run() -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let client = chaos::client()?;
    let others = RequestProbe::start(rig.service.api, rig.request("GET", "/v1/me", "")?);
    let no_op = RequestProbe::no_op(rig.service.api);
    let (mut code_host, mut resolver) = (Measurement::default(), Measurement::default());
    let claim = rig.post(&client, "projects/site/hostnames", json!({ "name": "www.providers.example.net" })).await?;
    claim.get("verificationToken").context("no token")?;
    for fault in PROVIDER_FAULTS {
        measure_sign_in(&rig, &client, fault, &mut code_host).await?;
        measure_verification(&rig, &client, fault, &mut resolver).await?;
    }
    let mail = measure_mail(&rig, &client).await?;
    let (others, no_op) = (others.stop().await?, no_op.stop().await?);
    rig.verify(&mut outcome).await?;
    let failed = load::count_status(&others, |status| status != 200);
    let longest = code_host.longest_wait.max(resolver.longest_wait).max(mail.longest_wait);
    let unexpected: Vec<String> = [code_host.unexpected, resolver.unexpected, mail.unexpected].concat();
    outcome.findings.push(Finding::new(
        "a provider is down, hangs or returns HTML",
        "the documented code within 10 s; other routes unaffected",
        unexpected.is_empty() && failed == 0 && longest <= Duration::from_secs(10),
        format!(
            "mail, code host and resolver, with three faults each: the documented response within {:.1} s, exceptions \
             {unexpected:?}; queued mail sent after each fault; {failed} of {} requests to other routes failed, p99 \
             {:.1} ms; no-op {:.1} ms",
            longest.as_secs_f64(),
            others.len(),
            load::percentile(&others, 99, |_| true),
            load::percentile(&no_op, 99, |_| true),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

impl Measurement {
    fn record(&mut self, since: Instant, outcome: &str, expected: &str) {
        self.longest_wait = self.longest_wait.max(since.elapsed());
        if !outcome.contains(expected) {
            self.unexpected.push(format!("{outcome} instead of {expected}"));
        }
    }
}

async fn measure_sign_in(
    rig: &Rig,
    client: &Client,
    fault: ProviderFault,
    measurement: &mut Measurement,
) -> Result<()> {
    for endpoint in [Endpoint::Token, Endpoint::User] {
        let (host, proxy) = &rig.code_host;
        match fault {
            ProviderFault::Unreachable => proxy.set_fault(NetworkFault::Disconnect),
            ProviderFault::Unresponsive if endpoint == Endpoint::Token => proxy.set_fault(NetworkFault::Blackhole),
            ProviderFault::Unresponsive => host.inject(endpoint, Some(ResponseFault::Hang)),
            ProviderFault::InvalidResponse => host.inject(endpoint, Some(ResponseFault::Html)),
        }
        let since = Instant::now();
        let result = sign_in(client, &rig.service.base()).await?;
        measurement.record(since, &result, "error=codehost_unavailable");
        proxy.set_fault(NetworkFault::None);
        host.inject(endpoint, None);
    }
    let result = sign_in(client, &rig.service.base()).await?;
    measurement.record(Instant::now(), result.split('=').next().unwrap_or_default(), "token");
    Ok(())
}

async fn measure_verification(
    rig: &Rig,
    client: &Client,
    fault: ProviderFault,
    measurement: &mut Measurement,
) -> Result<()> {
    rig.resolver.inject(Some(match fault {
        ProviderFault::Unreachable => DnsFault::Refused,
        ProviderFault::Unresponsive => DnsFault::Silent,
        ProviderFault::InvalidResponse => DnsFault::Garbage,
    }));
    let since = Instant::now();
    let hostname = rig.post(client, "projects/site/hostnames/www.providers.example.net/verify", json!({})).await?;
    let (state, error) =
        (hostname.get("state").and_then(Value::as_str), hostname.get("lastError").and_then(Value::as_str));
    measurement.record(
        since,
        &format!("{} {}", state.unwrap_or_default(), error.map_or("", |_| "with an error")),
        "pending_dns with an error",
    );
    rig.resolver.inject(None);
    Ok(())
}

/// Tests that requests do not wait for mail: the response is immediate, and the mail follows after the fault.
async fn measure_mail(rig: &Rig, client: &Client) -> Result<Measurement> {
    let (server, proxy) = &rig.smtp;
    let mut measurement = Measurement::default();
    for fault in PROVIDER_FAULTS {
        match fault {
            ProviderFault::Unreachable => proxy.set_fault(NetworkFault::Disconnect),
            ProviderFault::Unresponsive => proxy.set_fault(NetworkFault::Blackhole),
            ProviderFault::InvalidResponse => server.inject(Some(SmtpFault::NotSmtp)),
        }
        let since = Instant::now();
        let address = format!("{fault:?}@providers.example.net");
        let invite = rig.post(client, "invites", json!({ "email": address, "role": "viewer" })).await?;
        measurement.record(since, if invite.get("id").is_some() { "invited" } else { "no id" }, "invited");
        sleep(Duration::from_millis(500)).await;
        proxy.set_fault(NetworkFault::None);
        server.inject(None);
    }
    let since = Instant::now();
    let arrived = |fault: &ProviderFault| {
        let address = format!("{fault:?}@providers.example.net");
        server.received().iter().any(|mail| mail.to.iter().any(|to| to.eq_ignore_ascii_case(&address)))
    };
    while !PROVIDER_FAULTS.iter().all(arrived) {
        if since.elapsed() > Duration::from_secs(60) {
            measurement.unexpected.push("a mail that was not sent".to_owned());
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(measurement)
}
