//! `kill -9` of the server and an immediate stop of Postgres while organizations buy domains, with a registrar and a
//! payments provider that fail before or after their effects at random.
//!
//! Each buyer repeats a purchase until it ends. The registrar refuses one of three purchases after the payments
//! provider has charged it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chaos::run_clients;
use futures_util::future::{join, join_all, try_join_all};
use kernel::ClockRng;
use reqwest::{Client, StatusCode};
use sandbox::{PaymentsFault, PaymentsServer, RegistrarFault, RegistrarOperation, RegistrarServer};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Outcome;
use super::report::Finding;
use super::rig::Rig;
use crate::bench::server::success_json;
use crate::connected_app::start_session;

const BUYERS: usize = 8;
/// The number of kills in a full run, alternately of the server and of Postgres.
const KILLS: usize = 18;
/// The price of a `.com` name for a year.
const CENTS: i64 = 1_299;
/// The longest time after the end of all faults until every purchase and refund has ended. A failed refund is repeated
/// after at most five minutes.
const MAX_COMPLETION: Duration = Duration::from_secs(330);

const OPEN: &str = "SELECT id FROM store.sagas WHERE finished_at IS NULL";

/// Selects the domains whose purchase is not complete.
const INCOMPLETE: &str = "\
    SELECT d.name, d.state FROM domains.domains d WHERE d.state <> 'active' OR d.nameservers <> '{ns1.localhost,ns2.localhost}' \
        OR NOT EXISTS (SELECT FROM dns.zones z WHERE z.name = d.name AND z.org_id = d.org_id)";

/// A buyer, with the outcomes of its purchases.
pub struct Buyer {
    name: String,
    token: String,
    /// The id of the organization.
    org: String,
    pub bought: Vec<String>,
    pub refused: Vec<String>,
    wrong: Vec<String>,
    repeated: usize,
}

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (registrar, payments) = (RegistrarServer::start().await, PaymentsServer::start(None).await);
    let settings = [&registrar.settings()[..], &payments.settings()].concat();
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&settings).await?);
    let (client, base) = (chaos::client()?, rig.service.base());
    let buyers = try_join_all((0..BUYERS).map(|number| Buyer::start(&client, &base, &payments, number))).await?;
    let stopped = AtomicBool::new(false);
    let kills = (KILLS * rounds).div_ceil(3);
    let purchases = join_all(buyers.into_iter().map(|buyer| buyer.run(&client, &base, Duration::ZERO, &stopped)));
    let failures = fail_at_random(&registrar, &payments, &stopped);
    let clients = join(purchases, failures);
    let ((buyers, ()), ()) = run_clients(clients, &stopped, rig.kill_repeatedly(kills)).await?;
    let completed_in = wait_until_complete(&rig.database).await?;
    outcome.violations.extend(violations(&buyers, &rig.database, &registrar, &payments).await?);
    let count = |of: fn(&Buyer) -> usize| buyers.iter().map(of).sum::<usize>();
    let (bought, refused) = (count(|buyer| buyer.bought.len()), count(|buyer| buyer.refused.len()));
    ensure!(bought > 0 && refused > 0, "no purchase ended");
    rig.verify(&mut outcome).await?;
    outcome.findings.push(Finding::new(
        "kill -9 of the server and of Postgres while organizations buy domains, and both providers fail at random",
        "every purchase ends with one charge, one registration and one zone, or with a refund and nothing registered",
        outcome.violations.is_empty(),
        format!(
            "{kills} kills: {bought} domains bought, {refused} purchases refunded, {} requests repeated; {} violations; all \
             complete {:.1} s after the last fault",
            count(|buyer| buyer.repeated),
            outcome.violations.len(),
            completed_in.as_secs_f64(),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Changes the faults of both providers several times a second, until stopped.
async fn fail_at_random(registrar: &RegistrarServer, payments: &PaymentsServer, stopped: &AtomicBool) {
    let unavailable = || RegistrarFault::Response(503, "application/json", r#"{"message":"Unavailable"}"#.to_owned());
    while !stopped.load(Ordering::SeqCst) {
        let [first, second] = ClockRng::system().bytes::<2>();
        registrar.inject(match first % 8 {
            0 => Some(RegistrarFault::LostResponse),
            1 => Some(RegistrarFault::Close),
            2 => Some(RegistrarFault::HangAfter),
            3 => Some(RegistrarFault::html(200)),
            4 => Some(unavailable()),
            _ => None,
        });
        payments.inject(match second % 8 {
            0 => Some(PaymentsFault::LostResponse),
            1 => Some(PaymentsFault::HangAfter),
            2 => Some(PaymentsFault::Html),
            3 => Some(PaymentsFault::Unavailable),
            _ => None,
        });
        sleep(Duration::from_millis(150)).await;
    }
    registrar.inject(None);
    payments.inject(None);
}

/// Returns the differences between the outcomes of all purchases, the data of the providers, and the database.
pub async fn violations(
    buyers: &[Buyer],
    database: &str,
    registrar: &RegistrarServer,
    payments: &PaymentsServer,
) -> Result<Vec<String>> {
    let incomplete = chaos::rows(database, INCOMPLETE).await?;
    let mut violations: Vec<String> = incomplete.iter().map(|row| format!("a domain is not complete: {row}")).collect();
    for buyer in buyers {
        violations.extend(buyer.violations(registrar, payments));
        violations.extend(buyer.differences_to_owned(database).await?);
    }
    Ok(violations)
}

/// Waits until no purchase and no refund is in progress.
pub async fn wait_until_complete(database: &str) -> Result<Duration> {
    let start = Instant::now();
    while !chaos::rows(database, OPEN).await?.is_empty() {
        ensure!(start.elapsed() < MAX_COMPLETION, "purchases are still in progress");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(start.elapsed())
}

impl Buyer {
    /// Signs in, and saves a card.
    pub async fn start(client: &Client, base: &str, payments: &PaymentsServer, number: usize) -> Result<Self> {
        let name = format!("buyer-{number}");
        let token = start_session(client, base, &name).await?;
        let orgs = client.get(format!("{base}/v1/orgs")).bearer_auth(&token).send().await?;
        let orgs = success_json(orgs).await?;
        let org = orgs.pointer("/items/0/id").and_then(Value::as_str).context("no organization")?.to_owned();
        payments.set_card(&org, false);
        Ok(Self { name, token, org, bought: Vec::new(), refused: Vec::new(), wrong: Vec::new(), repeated: 0 })
    }

    /// Buys domains until stopped, one after the other, with a pause after each.
    pub async fn run(mut self, client: &Client, base: &str, pause: Duration, stopped: &AtomicBool) -> Self {
        for number in 0.. {
            if stopped.load(Ordering::SeqCst) {
                break;
            }
            let prefix = if number % 3 == 2 { "status-register-422-" } else { "" };
            self.buy(client, base, format!("{prefix}{}-{number}.com", self.name)).await;
            sleep(pause).await;
        }
        self
    }

    /// Repeats a purchase until it ends.
    async fn buy(&mut self, client: &Client, base: &str, name: String) {
        let url = format!("{base}/v1/orgs/{}/domains", self.name);
        let body = json!({ "name": name, "contact": {
            "firstName": "Ada", "lastName": "Lovelace", "email": "ada@code.example", "phone": "+442079460000",
            "street": "12 St James's Square", "city": "London", "postalCode": "SW1Y 4JH", "country": "GB",
        } });
        loop {
            let response = client.post(&url).bearer_auth(&self.token).json(&body).send().await;
            match response.map(|response| response.status()) {
                Ok(StatusCode::OK | StatusCode::CREATED) => return self.bought.push(name),
                Ok(StatusCode::UNPROCESSABLE_ENTITY) => return self.refused.push(name),
                Ok(StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE) | Err(_) => self.repeated += 1,
                Ok(status) => return self.wrong.push(format!("the purchase of {name} returned {status}")),
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Compares the bought names with the domains and the zones of the organization. Returns the differences.
    async fn differences_to_owned(&self, database: &str) -> Result<Vec<String>> {
        let bought: BTreeSet<&str> = self.bought.iter().map(String::as_str).collect();
        let (mut differences, buyer) = (Vec::new(), &self.name);
        for (kind, table) in [("domain", "domains.domains"), ("zone", "dns.zones")] {
            let statement =
                format!("SELECT name FROM {table} WHERE org_id = (SELECT id FROM orgs.orgs WHERE slug = '{buyer}')");
            let rows = chaos::rows(database, &statement).await?;
            let owned: BTreeSet<&str> = rows.iter().filter_map(|row| row.get("name")?.as_str()).collect();
            for name in bought.symmetric_difference(&owned) {
                let (is_bought, exists) = (bought.contains(name), owned.contains(name));
                differences.push(format!("{buyer}, {name}: bought: {is_bought}, the {kind} exists: {exists}"));
            }
        }
        Ok(differences)
    }

    /// Compares the outcomes of the purchases with the data of the providers. Returns the differences.
    fn violations(&self, registrar: &RegistrarServer, payments: &PaymentsServer) -> Vec<String> {
        let mut violations = self.wrong.clone();
        let orders = registrar.orders();
        let of_name = |name: &String| {
            orders.iter().filter(|it| it.operation == RegistrarOperation::Register && it.name == *name).count()
        };
        let expected = self.bought.iter().map(|name| (name, 1)).chain(self.refused.iter().map(|name| (name, 0)));
        for (name, expected) in expected {
            let count = of_name(name);
            if count != expected {
                violations.push(format!("{name} was registered {count} times, not {expected} times"));
            }
        }
        let (paid, price) =
            (payments.net_cents(&self.org), CENTS * i64::try_from(self.bought.len()).unwrap_or(i64::MAX));
        if paid != price {
            violations.push(format!("{} paid {paid} cents for {} domains", self.name, self.bought.len()));
        }
        violations
    }
}
