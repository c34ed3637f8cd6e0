//! Access to protected sites.

use std::path::Path;

use actix_web::dev::ServerHandle;
use actix_web::{App as Stub, HttpResponse, HttpServer, web};
use serde_json::{Value, json};
use testkit::reserved_port;

use super::Browser;
use crate::convergence::nodes::TestNode;
use crate::support::{App, Caller, eventually, site};

const HOST: &str = "site-ada.localhost";
const ACCESS: &str = "/v1/orgs/ada/projects/site/access";

/// Returns the authorize page of a dashboard: it calls the API as the signed-in user and redirects the browser.
fn dashboard(port: u16, api: &str, token: &str) -> ServerHandle {
    let screen = format!(
        "<!doctype html><title>Dashboard</title><p>one moment</p><script>\
         const asked = Object.fromEntries(new URLSearchParams(location.search));\
         fetch('{api}/v1/access/authorize', {{ method: 'POST', body: JSON.stringify(asked), headers: \
         {{ 'content-type': 'application/json', authorization: 'Bearer {token}' }} }})\
         .then(answer => answer.json())\
         .then(answer => {{ if (answer.redirect) location = answer.redirect; else document.body.innerText = answer.code }});\
         </script>"
    );
    let app = move || {
        let screen = screen.clone();
        Stub::new().route(
            "/access/authorize",
            web::get().to(move || {
                let page = HttpResponse::Ok().content_type("text/html").body(screen.clone());
                async { page }
            }),
        )
    };
    let server = HttpServer::new(app).workers(1).disable_signals().bind(("127.0.0.1", port)).unwrap().run();
    let handle = server.handle();
    tokio::spawn(server);
    handle
}

/// Sets an access policy and waits until the node applies it.
async fn protect(ada: &Caller, edge: &TestNode, policy: Value, status: u16) {
    ada.put(ACCESS, policy).await.expect(200);
    edge.wait_for_status(HOST, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_get_access_by_password_sign_in_and_bypass_key() {
    let Some(browser) = Browser::start().await else { return };
    let (front, screen) = (reserved_port(), reserved_port());
    let app = App::with(|config| {
        config.site_url = format!("http://{{hostname}}:{front}").parse().unwrap();
        config.gateway.site.dashboard_url = format!("http://127.0.0.1:{screen}");
    })
    .await;
    let edge = TestNode::listening(&app, &format!("127.0.0.1:{front}")).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload("/v1/orgs/ada/projects/site/deployments", site("<p>inside</p>")).await.expect(201);
    edge.wait_for_page(HOST, "<p>inside</p>").await;
    let (home, page) = (format!("http://{HOST}:{front}/"), format!("http://{HOST}:{front}/?a=b"));

    let password = "correct horse battery";
    protect(&ada, &edge, json!({ "mode": "password", "password": password }), 401).await;
    browser.open(&page).await;
    browser.wait_for_text("This site is protected").await;
    browser.enter("#password", "a wrong one").await;
    browser.click("button").await;
    browser.wait_for_text("The password is wrong").await;
    browser.enter("#password", password).await;
    browser.click("button").await;
    assert_eq!(browser.wait_for_text("inside").await, page);
    // The access cookie is HttpOnly and persists.
    assert_eq!(browser.run("return document.cookie").await, "");
    browser.open(&home).await;
    browser.wait_for_text("inside").await;

    // A new policy invalidates the cookie.
    protect(&ada, &edge, json!({ "mode": "org" }), 302).await;
    let stub = dashboard(screen, &app.base, ada.token.as_deref().unwrap());
    browser.open(&page).await;
    assert_eq!(browser.wait_for_text("inside").await, page);
    stub.stop(false).await;

    // The dashboard rejects a user who is not a member.
    protect(&ada, &edge, json!({ "mode": "password", "password": "another one entirely" }), 401).await;
    protect(&ada, &edge, json!({ "mode": "org" }), 302).await;
    let eve = app.sign_in("eve").await;
    let stub = dashboard(screen, &app.base, eve.token.as_deref().unwrap());
    browser.open(&page).await;
    browser.wait_for_text("forbidden").await;
    stub.stop(false).await;

    let key = ada.post(&format!("{ACCESS}/bypass"), json!({})).await.expect(200)["secret"].clone();
    browser.command("Network.enable", json!({})).await;
    browser.command("Network.setExtraHTTPHeaders", json!({ "headers": { "Svc-Access-Bypass": key } })).await;
    eventually("the node admits the browser", async || {
        browser.open(&home).await;
        (browser.run("return Number(location.port)").await == front).then_some(())
    })
    .await;
    assert_eq!(browser.wait_for_text("inside").await, home);
    assert!(Path::new(&browser.profile).exists());
}
