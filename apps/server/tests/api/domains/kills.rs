//! `kill -9` of the server before and after each effect of a purchase. In half of the cases, a second server continues
//! the purchase.

use sandbox::{PaymentsFault, PaymentsServer, RegistrarFault, RegistrarOperation, RegistrarServer};
use serde_json::{Value, json};

use super::{COM_CENTS, DOMAINS, NAMESERVERS, purchase};
use crate::process::Process;
use crate::support::{client, eventually};

/// The request at which the server dies.
#[derive(Debug, Clone, Copy)]
enum At {
    Registrar(RegistrarOperation),
    /// The requests to the payments provider whose path ends with this text.
    Payments(&'static str),
}

const REQUESTS: [At; 5] = [
    At::Registrar(RegistrarOperation::Check),
    At::Payments("/orders/"),
    At::Payments("/finalize"),
    At::Registrar(RegistrarOperation::Register),
    At::Registrar(RegistrarOperation::SetNameservers),
];

struct Kit {
    registrar: RegistrarServer,
    payments: PaymentsServer,
    /// The server that is killed.
    server: Process,
    /// A server of the same installation that runs all the time.
    other: Process,
    session: String,
    org: String,
}

impl Kit {
    async fn start() -> Self {
        let (registrar, payments) = (RegistrarServer::start().await, PaymentsServer::start(None).await);
        let nameservers = [("SVC_NAMESERVERS", NAMESERVERS.join(","))];
        let settings = [&registrar.settings()[..], &payments.settings(), &nameservers].concat();
        let server = Process::with(&settings).await;
        let same_database = [("SVC_DATABASE_URL", server.database.url())];
        let other = Process::with(&[&settings[..], &same_database].concat()).await;
        let session = server.sign_in().await;
        let orgs = server.json(&session, "GET", "/v1/orgs", None).await;
        let org = orgs["items"][0]["id"].as_str().unwrap().to_owned();
        payments.set_card(&org, false);
        // A pro plan has enough zones.
        server.database.run("UPDATE orgs.orgs SET plan = 'pro'").await;
        Self { registrar, payments, server, other, session, org }
    }

    fn request(&self, server: &Process, name: &str) -> reqwest::RequestBuilder {
        client().post(format!("{}{DOMAINS}", server.base)).bearer_auth(&self.session).json(&purchase(name))
    }

    /// Kills the server while a provider holds this request of a purchase, before or after its effect.
    async fn kill_during(&mut self, name: &str, at: At, after: bool) {
        match at {
            At::Registrar(operation) => {
                let fault = if after { RegistrarFault::HangAfter } else { RegistrarFault::Hang };
                self.registrar.inject_into(operation, fault);
            }
            At::Payments(path_end) => {
                let fault = if after { PaymentsFault::HangAfter } else { PaymentsFault::Hang };
                self.payments.inject_into(path_end, fault);
            }
        }
        let purchase = tokio::spawn(self.request(&self.server, name).send());
        eventually("the request at the provider", async || {
            (self.registrar.hanging() + self.payments.hanging() > 0).then_some(())
        })
        .await;
        self.server.kill();
        purchase.await.unwrap().unwrap_err();
        self.registrar.inject(None);
        self.payments.inject(None);
        // End the lease of the killed server instead of waiting for it.
        self.server.database.run("UPDATE store.sagas SET lease_until = created_at, next_attempt_at = created_at").await;
    }

    /// Repeats the purchase request until the purchase ends.
    async fn finish(&self, server: &Process, name: &str) -> (u16, Value) {
        eventually("the end of the purchase", async || {
            let response = self.request(server, name).send().await.unwrap();
            let (status, body) = (response.status().as_u16(), response.bytes().await.unwrap());
            (![502, 503].contains(&status)).then(|| (status, serde_json::from_slice(&body).unwrap_or_default()))
        })
        .await
    }

    fn registrations(&self, name: &str) -> usize {
        self.registrar.orders().iter().filter(|order| order.name == name).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purchase_ends_with_one_charge_and_one_registration_when_a_server_is_killed() {
    let mut kit = Kit::start().await;
    let mut charged = 0;
    for (number, (at, after)) in REQUESTS.into_iter().flat_map(|at| [(at, false), (at, true)]).enumerate() {
        let name = format!("kill-{number}.com");
        kit.kill_during(&name, at, after).await;
        // In the cases with an odd number, the second server continues the purchase while the first one is down.
        if number % 2 == 0 {
            kit.server.restart().await;
        }
        let server = if number % 2 == 0 { &kit.server } else { &kit.other };
        let (status, body) = kit.finish(server, &name).await;
        assert!([200, 201].contains(&status), "{at:?} {after}: {body}");
        assert_eq!((&body["state"], &body["nameservers"]), (&json!("active"), &json!(NAMESERVERS)));
        if number % 2 == 1 {
            kit.server.restart().await;
        }
        charged += COM_CENTS;
        assert_eq!((kit.registrations(&name), kit.payments.net_cents(&kit.org)), (1, charged), "{at:?} {after}");
        let zones = format!("SELECT count(*) FROM dns.zones WHERE name = '{name}'");
        assert_eq!(kit.server.database.number(&zones).await, 1);
    }
    assert_eq!(kit.payments.refunds(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_purchase_ends_with_a_refund_when_a_server_is_killed() {
    let mut kit = Kit::start().await;
    for (number, after) in [false, true].into_iter().enumerate() {
        let name = format!("status-register-422-{number}.com");
        kit.kill_during(&name, At::Payments("/refunds/"), after).await;
        // The job of the second server completes the refund.
        eventually("the end of the purchase", async || {
            let open = "SELECT count(*) FROM store.sagas WHERE finished_at IS NULL";
            (kit.server.database.number(open).await == 0).then_some(())
        })
        .await;
        kit.server.restart().await;
        assert_eq!((kit.registrations(&name), kit.payments.net_cents(&kit.org)), (0, 0), "{after}");
        assert_eq!(kit.payments.refunds().len(), number + 1);
        let zones = format!("SELECT count(*) FROM dns.zones WHERE name = '{name}'");
        assert_eq!(kit.server.database.number(&zones).await, 0);
    }
}
