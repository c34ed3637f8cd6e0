//! The contact of a purchase is stored only in sealed form, and neither shown nor logged.

use sandbox::{PaymentsServer, RegistrarFault, RegistrarServer};
use serde_json::{Value, json};

use super::{DOMAINS, contact};
use crate::process::Process;
use crate::support::client;

/// Parts of the contact that occur nowhere else.
const CANARIES: [&str; 4] = ["Kanarienvogel", "kanarienvogel@code.example", "+4930987654321", "Vogelweide 17"];

#[tokio::test(flavor = "multi_thread")]
async fn contact_is_found_only_in_sealed_form() {
    let (registrar, payments) = (RegistrarServer::start().await, PaymentsServer::start(None).await);
    let settings = [
        &registrar.settings()[..],
        &payments.settings(),
        &[("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned()), ("SVC_LOG", "trace".to_owned())],
    ]
    .concat();
    let server = Process::with(&settings).await;
    let session = server.sign_in().await;
    let orgs = server.json(&session, "GET", "/v1/orgs", None).await;
    payments.set_card(orgs["items"][0]["id"].as_str().unwrap(), false);
    let mut contact = contact();
    let members = ["lastName", "email", "phone", "street"];
    for (member, canary) in members.into_iter().zip(CANARIES) {
        contact[member] = json!(canary);
    }
    let mut shown = String::new();
    let mut send = async |method: &str, path: &str, body: Value| {
        let request = client().request(method.parse().unwrap(), format!("{}{path}", server.base)).bearer_auth(&session);
        let response = request.json(&body).send().await.unwrap();
        let status = response.status().as_u16();
        shown.push_str(&response.text().await.unwrap());
        status
    };
    let purchase = |name: &str, contact: &Value| json!({ "name": name, "contact": contact });
    assert_eq!(send("POST", DOMAINS, purchase("shop.com", &contact)).await, 201);
    // Refusals of the registrar quote the contact, and other failures interrupt the purchase.
    let invalid = json!({ "postalCode": "00000" });
    let mut refused = contact.clone();
    refused.as_object_mut().unwrap().extend(invalid.as_object().unwrap().clone());
    assert_eq!(send("POST", DOMAINS, purchase("refused.com", &refused)).await, 422);
    registrar.inject(Some(RegistrarFault::Response(503, "text/html", contact.to_string())));
    assert_eq!(send("POST", DOMAINS, purchase("broken.com", &contact)).await, 502);
    let mut malformed = contact.clone();
    malformed["country"] = json!("XX");
    assert_eq!(send("POST", DOMAINS, purchase("invalid.com", &malformed)).await, 400);
    assert_eq!(send("GET", DOMAINS, Value::Null).await, 200);
    assert_eq!(send("GET", &format!("{DOMAINS}/shop.com"), Value::Null).await, 200);
    assert_eq!(send("GET", "/v1/orgs/ada/audit", Value::Null).await, 200);

    // The registrar got it.
    let dump = dump(&server).await;
    assert!(dump.contains("shop.com"), "{} bytes", dump.len());
    let metrics = server.metrics().await;
    for canary in CANARIES {
        for (place, text) in [("responses", &shown), ("log", &server.log()), ("metrics", &metrics), ("tables", &dump)] {
            assert!(!text.contains(canary), "{canary} in {place}");
        }
        let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!dump.contains(&hex), "{canary} in bytes of a table");
    }
}

/// Returns all rows of all tables as text.
async fn dump(server: &Process) -> String {
    let tables = "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
        WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    let mut dump = String::new();
    for table in server.database.rows(tables).await {
        let name = table["name"].as_str().unwrap();
        for row in server.database.rows(&format!("SELECT t::text AS row FROM {name} t")).await {
            dump.push_str(row["row"].as_str().unwrap_or_default());
        }
    }
    dump
}
