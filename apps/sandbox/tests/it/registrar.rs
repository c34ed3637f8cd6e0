//! The registrar: its API and its page. The tests of `providers` cover the operations of a domain.

use sandbox::{REGISTRAR_TOKEN, REGISTRAR_USER};
use serde_json::{Value, json};

use super::{TestSandbox, header};

const NAME: &str = "shop.com";

/// Sends a request to the API. Returns the status and the body.
async fn call(sandbox: &TestSandbox, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/registrar/core/v1/{path}", sandbox.base);
    let request = sandbox.browser.request(method.parse().unwrap(), url);
    let request = request.basic_auth(REGISTRAR_USER, Some(REGISTRAR_TOKEN)).body(body.to_string());
    let response = request.send().await.unwrap();
    (response.status().as_u16(), serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

fn registration() -> Value {
    let contact = json!({ "firstName": "Ada", "lastName": "Lovelace", "address1": "12 St James's Square",
        "city": "London", "zip": "SW1Y 4JH", "country": "GB", "phone": "+442079460000", "email": "ada@code.example" });
    let contacts = json!({ "registrant": contact, "admin": contact, "tech": contact, "billing": contact });
    let domain = json!({ "domainName": NAME, "contacts": contacts, "locked": true, "autorenewEnabled": true });
    json!({ "domain": domain, "purchasePrice": 12.99, "years": 1 })
}

#[tokio::test]
async fn page_shows_the_account_and_changes_domains() {
    let sandbox = TestSandbox::start().await;
    assert_eq!(call(&sandbox, "POST", "domains", &registration()).await.0, 200);
    let page = sandbox.text("/registrar").await;
    for shown in ["shop.com", "$12.99", "ada@code.example", "locked, not transferable until", "Register shop.com: 200"]
    {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(sandbox.text("/dns").await.contains("ns1.registrar.example"));
    for (action, member, before) in [("unlock", "locked", json!(true)), ("unlock", "locked", Value::Null)] {
        assert_eq!(call(&sandbox, "GET", "domains/shop.com", &Value::Null).await.1[member], before);
        let submitted = sandbox.submit("/registrar", &[("domain", NAME), ("action", action)]).await;
        assert_eq!((submitted.status().as_u16(), header(&submitted, "location").as_str()), (302, "/registrar"));
    }
    let expiry = async || call(&sandbox, "GET", "domains/shop.com", &Value::Null).await.1["expireDate"].to_string();
    let first = expiry().await;
    sandbox.submit("/registrar", &[("domain", NAME), ("action", "soon")]).await;
    let soon = expiry().await;
    sandbox.submit("/registrar", &[("domain", NAME), ("action", "expire")]).await;
    let expired = expiry().await;
    assert!(expired < soon && soon < first);
    sandbox.submit("/registrar", &[("domain", NAME), ("action", "renew")]).await;
    assert!(expiry().await > soon);
    assert!(sandbox.text("/registrar").await.contains("Renew shop.com for 1 years: $15.99"));
    sandbox.submit("/registrar", &[("domain", NAME), ("action", "transfer")]).await;
    assert_eq!(call(&sandbox, "GET", "domains/shop.com", &Value::Null).await.0, 404);
    for unknown in [("domain", "other.com"), ("action", "unknown")] {
        let fields =
            [("domain", NAME), ("action", "expire")].map(|field| if field.0 == unknown.0 { unknown } else { field });
        assert_eq!(sandbox.submit("/registrar", &fields).await.status(), 404);
    }
}

#[tokio::test]
async fn domain_has_the_auto_renewal_of_its_registration() {
    for (requested, shown) in [(json!(true), json!(true)), (json!(false), Value::Null), (Value::Null, Value::Null)] {
        let sandbox = TestSandbox::start().await;
        let mut body = registration();
        body["domain"]["autorenewEnabled"] = requested;
        assert_eq!(call(&sandbox, "POST", "domains", &body).await.0, 200);
        assert_eq!(call(&sandbox, "GET", "domains/shop.com", &Value::Null).await.1["autorenewEnabled"], shown);
    }
}

#[tokio::test]
async fn request_completes_after_its_caller_has_left() {
    let sandbox = TestSandbox::start().await;
    sandbox.submit("/registrar", &[("fault", "hang after the effect")]).await;
    let body = registration();
    // The caller disconnects when the domain is registered.
    tokio::select! {
        response = call(&sandbox, "POST", "domains", &body) => panic!("{response:?}"),
        () = sandbox.wait_for("/registrar", "Register shop.com for 1 years", 1) => {}
    }
    sandbox.submit("/registrar", &[("fault", "none")]).await;
    sandbox.wait_for("/registrar", "Register shop.com: no response", 1).await;
    sandbox.wait_for("/dns", "ns1.registrar.example", 1).await;
}

#[tokio::test]
async fn page_selects_a_fault_of_the_api() {
    let sandbox = TestSandbox::start().await;
    for (fault, status) in [("unavailable", 503), ("402", 402), ("409", 409), ("422", 422), ("429", 429), ("none", 404)]
    {
        sandbox.submit("/registrar", &[("fault", fault)]).await;
        assert!(sandbox.text("/registrar").await.contains(&format!("<option selected>{fault}<")), "{fault}");
        assert_eq!(call(&sandbox, "GET", "domains/shop.com", &Value::Null).await.0, status, "{fault}");
    }
}

#[tokio::test]
async fn api_refuses_what_the_real_one_refuses() {
    let sandbox = TestSandbox::start().await;
    let url = format!("{}/registrar/core/v1/domains/shop.com", sandbox.base);
    assert_eq!(sandbox.browser.get(url).send().await.unwrap().status(), 401);
    for (pointer, value, status) in [
        ("/purchasePrice", json!(12.98), 400),
        ("/years", json!(11), 400),
        ("/domain/domainName", json!("taken-1.com"), 409),
        ("/domain/contacts/tech/email", json!("nobody"), 422),
        ("/domain/contacts/registrant/zip", json!("00000"), 422),
    ] {
        let mut body = registration();
        *body.pointer_mut(pointer).unwrap() = value;
        assert_eq!(call(&sandbox, "POST", "domains", &body).await.0, status, "{pointer}");
    }
    assert_eq!(call(&sandbox, "PUT", "domains/shop.com", &Value::Null).await.0, 404);
    // Unlike the real API, it refuses a renewal without an idempotency key.
    assert_eq!(call(&sandbox, "POST", "domains/shop.com:renew", &json!({ "years": 1 })).await.0, 400);
}
