//! Zones and rrsets.

mod delegation;
mod deletion;
mod dnssec;
mod hostnames;
mod large;
mod limits;
mod memory;
mod races;
mod rrsets;
mod slow_resolver;
mod takeovers;
mod zonefile;
mod zones;

use sandbox::DnsServer;
use serde_json::{Value, json};

use crate::support::{App, Caller};

/// Ada's zone.
pub const ZONE: &str = "/v1/orgs/ada/dns/zones/example.org";

/// Returns an installation that hosts zones, and Ada with the zone `example.org`.
async fn setup() -> (App, Caller) {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    create(&ada, "ada", "example.org").await;
    (app, ada)
}

/// Returns a deployment with the DNS server that it queries, Ada and Bob.
async fn setup_with_resolver() -> (App, DnsServer, Caller, Caller) {
    let dns = DnsServer::start().await;
    let address = dns.address();
    let app = App::with(|config| config.dns_resolver = Some(address)).await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    (app, dns, ada, bob)
}

async fn create(caller: &Caller, org: &str, name: &str) -> Value {
    caller.post(&format!("/v1/orgs/{org}/dns/zones"), json!({ "name": name })).await.expect(200).clone()
}

async fn put(caller: &Caller, rrset: &str, records: &[&str]) -> Value {
    caller.put(&format!("{ZONE}/rrsets/{rrset}"), json!({ "records": records })).await.expect(200).clone()
}

/// Returns the unmanaged rrsets, as `name type ttl records`.
async fn unmanaged(caller: &Caller) -> Vec<String> {
    let zone = caller.get(ZONE).await.expect(200).clone();
    let rrsets = zone["rrsets"].as_array().unwrap().iter().filter(|rrset| rrset["managed_by"].is_null());
    let texts = |rrset: &Value| {
        let records: Vec<&str> = rrset["records"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let text = |name: &str| rrset[name].as_str().unwrap().to_owned();
        format!("{} {} {} {}", text("name"), text("type"), rrset["ttl"], records.join(" | "))
    };
    rrsets.map(texts).collect()
}

async fn serial(caller: &Caller) -> u64 {
    caller.get(ZONE).await.expect(200)["serial"].as_u64().unwrap()
}
