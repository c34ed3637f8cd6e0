//! From `svc deploy` to the members' page, and back.

use sandbox::IdentityProvider;
use serde_json::{Value, json};

use super::{DOMAIN, Platform};
use crate::examples::{Svc, example};
use crate::support::eventually;

const AUTH: &str = "/v1/orgs/ada/projects/club/auth";
const LOGIN: &str = "/__svc/auth/login";

#[tokio::test(flavor = "multi_thread")]
async fn members_sign_in_until_sign_in_is_disabled() {
    let Some(platform) = Platform::start().await else { return };
    let svc = Svc::new(&platform.server);
    let (code, deployed, stderr) = svc.deploy(&example("members"), "club");
    assert_eq!((code, &deployed["status"]), (0, &"serving".into()), "{stderr}");
    assert!(stderr.contains("bindings: env.assets, env.db, env.auth"), "{stderr}");
    let (_, status, _) = svc.run(&["auth", "status", "--org", "ada", "--project", "club"]);
    assert_eq!(status["hosts"], json!([format!("club-ada.{DOMAIN}")]));
    platform.wait_until_ready("club").await;
    providers_appear_on_the_page(&platform).await;
    members_use_the_page(&platform).await;
    accounts_are_linked_by_a_verified_address(&platform).await;
    access_policy_comes_first(&platform).await;
    users_are_hidden_from_the_worker_s_role(&platform).await;
    provider_is_deleted_in_mid_flow(&platform).await;
    sign_in_is_disabled_and_enabled(&platform, &svc).await;
}

/// The page says that sign-in is not ready, then continues directly with one provider, then lets the visitor choose.
async fn providers_appear_on_the_page(platform: &Platform) {
    let visitor = platform.visitor("club");
    let login = async || visitor.get("/__svc/auth/login?next=/members").await;
    let page = login().await;
    assert_eq!(page.status(), 404);
    assert!(page.text().await.unwrap().contains("Sign-in is not available yet"));
    platform.register("club", IdentityProvider::Messenger).await;
    let continued = async || {
        let response = login().await;
        let to = response.headers().get("location")?.to_str().unwrap().to_owned();
        to.starts_with(platform.providers.url(IdentityProvider::Messenger)).then_some(())
    };
    eventually("the only provider is used directly", continued).await;
    platform.register("club", IdentityProvider::CodeHost).await;
    platform.register("club", IdentityProvider::WebAccount).await;
    let page = eventually("the page offers all providers", async || {
        let page = login().await.text().await.unwrap();
        (page.matches("href=\"/__svc/auth/login/").count() == 3).then_some(page)
    });
    let page = page.await;
    assert!(page.contains(&format!("club-ada.{DOMAIN}")) && !page.contains("<script"), "{page}");
    platform.call("PATCH", AUTH, Some(json!({ "brandName": "Ada & <friends>", "brandColor": "#ffee00" }))).await;
    eventually("the brand is on the page", async || {
        login().await.text().await.unwrap().contains("Ada &amp; &lt;friends>").then_some(())
    })
    .await;
}

async fn members_use_the_page(platform: &Platform) {
    let ada = platform.visitor("club");
    let welcome = ada.get("/").await.text().await.unwrap();
    assert!(welcome.contains("/__svc/auth/login?next=/members"), "{welcome}");
    ada.sign_in("codehost", "ada").await;
    let user = ada.user().await;
    let expected = json!({
        "id": user["id"], "name": "Ada Lovelace", "email": "ada@mail.example", "provider": "codehost",
        "avatarUrl": "https://avatars.code.example/u/1815?v=4",
    });
    assert_eq!(user, expected);
    // A browser sends each line break of the form as two characters.
    let (sent, stored) = (format!("a{}\u{1f600}b", "\r\n".repeat(498)), format!("a{}\u{1f600}", "\n".repeat(498)));
    assert_eq!(ada.post("/profile", &[("about", sent.as_str())]).await.status(), 303);
    let page = ada.members_page().await.unwrap();
    assert!(page.contains(&format!("<li><strong>Ada Lovelace</strong> {stored}</li>")), "{page}");
    assert_eq!(ada.post("/profile", &[("about", "<b>Analyst</b>")]).await.status(), 303);
    let page = ada.members_page().await.unwrap();
    assert!(page.contains("signed in as <strong>Ada Lovelace</strong> (ada@mail.example)"), "{page}");
    assert!(page.contains("<li><strong>Ada Lovelace</strong> &lt;b&gt;Analyst&lt;/b&gt;</li>"), "{page}");
    assert!(ada.get("/").await.text().await.unwrap().contains("Hello, Ada Lovelace"));
    // A person without a name or an address is a member, too.
    let nameless = platform.visitor("club");
    nameless.sign_in("messenger", "nameless").await;
    let user = nameless.user().await;
    assert_eq!((&user["name"], &user["email"]), (&Value::Null, &Value::Null));
    assert!(nameless.members_page().await.unwrap().contains("A member without a name"));
    // Deleting the account ends its sessions in all browsers. The next sign-in creates another user.
    let other_browser = platform.visitor("club");
    other_browser.sign_in("messenger", "nameless").await;
    assert_eq!(other_browser.user().await["id"], user["id"]);
    assert_eq!(nameless.post("/leave", &[]).await.status(), 303);
    assert_eq!((nameless.user().await, other_browser.members_page().await), (Value::Null, None));
    other_browser.sign_in("messenger", "nameless").await;
    assert_ne!(other_browser.user().await["id"], user["id"]);
    let signed_out = ada.post("/__svc/auth/logout", &[]).await;
    assert_eq!((signed_out.status().as_u16(), &signed_out.headers()["location"]), (303, &"/".parse().unwrap()));
    assert_eq!(ada.members_page().await, None);
}

async fn accounts_are_linked_by_a_verified_address(platform: &Platform) {
    let id = async |provider: &str, person: &str| {
        let visitor = platform.visitor("club");
        visitor.sign_in(provider, person).await;
        visitor.user().await["id"].clone()
    };
    let (web, messenger) = (id("webaccount", "grace").await, id("messenger", "grace").await);
    assert_eq!(web, messenger);
    // An address that the provider did not verify, and the address of a code host, link to no user.
    let (ada, mallory) = (id("webaccount", "ada").await, id("webaccount", "mallory").await);
    let grace = id("codehost", "grace").await;
    assert!(ada != mallory && grace != web, "{ada} {mallory} {grace} {web}");
    assert_eq!(id("codehost", "grace-renamed").await, grace);
    assert_ne!(id("codehost", "grace-reused").await, grace);
}

async fn access_policy_comes_first(platform: &Platform) {
    const ACCESS: &str = "/v1/orgs/ada/projects/club/access";
    let visitor = platform.visitor("club");
    let status = async |path: &str| visitor.get(path).await.status().as_u16();
    platform.call("PUT", ACCESS, Some(json!({ "mode": "password", "password": "open sesame" }))).await;
    eventually("the page is protected", async || (status(LOGIN).await == 401).then_some(())).await;
    for path in ["/__svc/auth/session", "/__svc/auth/login/codehost", "/__svc/auth/callback/codehost"] {
        assert_eq!(status(path).await, 401, "{path}");
    }
    platform.call("PUT", ACCESS, Some(json!({ "mode": "public" }))).await;
    eventually("the page is public", async || (status(LOGIN).await == 200).then_some(())).await;
}

async fn users_are_hidden_from_the_worker_s_role(platform: &Platform) {
    let connect = platform.call("GET", "/v1/orgs/ada/projects/club/database/connect", None).await;
    let url = connect["url"].as_str().unwrap();
    assert_eq!(platform.psql(url, "SELECT count(*) FROM profiles").as_deref(), Ok("1"));
    for statement in [
        "SELECT * FROM svc_auth.users",
        "DELETE FROM svc_auth.sessions",
        "INSERT INTO svc_auth.users (id, provider) VALUES (gen_random_uuid(), 'codehost')",
        "DROP SCHEMA svc_auth CASCADE",
        "CREATE TABLE svc_auth.own (id int)",
        "ALTER SCHEMA svc_auth RENAME TO other",
        "GRANT USAGE ON SCHEMA svc_auth TO PUBLIC",
    ] {
        let refused = platform.psql(url, statement).unwrap_err();
        assert!(refused.contains("permission denied") || refused.contains("must be owner"), "{statement}: {refused}");
    }
}

async fn provider_is_deleted_in_mid_flow(platform: &Platform) {
    let (member, visitor) = (platform.visitor("club"), platform.visitor("club"));
    member.sign_in("messenger", "grace").await;
    let callback = visitor.approve("messenger", "grace").await;
    platform.call("DELETE", &format!("{AUTH}/providers/messenger"), None).await;
    eventually("the session ends", async || member.members_page().await.is_none().then_some(())).await;
    visitor.error_page(&callback).await;
    assert_eq!(visitor.user().await, Value::Null);
    // The provider is registered again: neither the flow nor the session begins again.
    platform.register("club", IdentityProvider::Messenger).await;
    let begins = async || (visitor.get("/__svc/auth/login/messenger").await.status() == 303).then_some(());
    eventually("the provider is back", begins).await;
    visitor.error_page(&callback).await;
    assert_eq!(visitor.user().await, Value::Null);
}

async fn sign_in_is_disabled_and_enabled(platform: &Platform, svc: &Svc) {
    let (ada, visitor) = (platform.visitor("club"), platform.visitor("club"));
    ada.sign_in("codehost", "ada").await;
    let (id, cookie) = (ada.user().await["id"].clone(), ada.session_cookie().unwrap());
    let callback = visitor.approve("codehost", "ada").await;
    let users = "SELECT count(*) FROM svc_auth.users";
    let before = platform.sql("club", users).await;
    let run = |command: &[&str]| svc.run(&[&["auth"], command, &["--org", "ada", "--project", "club"]].concat()).0;
    assert_eq!(run(&["disable", "--yes"]), 0);
    // The worker serves the paths: it passes them to its assets, of which none exists.
    let passed = async || {
        let response = ada.get(LOGIN).await;
        (response.status() == 404 && !response.text().await.unwrap().contains("Sign in")).then_some(())
    };
    eventually("the paths are the worker's", passed).await;
    assert_eq!(visitor.get(&callback).await.status(), 404);
    let page = eventually("the worker has no env.auth", async || {
        let response = ada.get("/members").await;
        (response.status() == 503).then_some(response)
    });
    assert!(page.await.text().await.unwrap().contains("svc auth enable"));
    assert_eq!(run(&["enable"]), 0);
    platform.wait_until_ready("club").await;
    // Users and providers are still there, but no session, and no flow of the time before.
    assert_eq!(platform.sql("club", users).await, before);
    ada.set_cookie(super::visitor::SESSION_COOKIE, &cookie);
    assert_eq!(ada.user().await, Value::Null);
    visitor.error_page(&callback).await;
    ada.sign_in("codehost", "ada").await;
    assert_eq!(ada.user().await["id"], id);
}
