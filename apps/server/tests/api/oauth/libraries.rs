//! Unmodified client libraries that run the whole flow: oauth4webapi and openid-client from npm, and Authlib from PyPI.
//! They learn everything about the server from its metadata. `cargo xtask test` installs them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::Command;

use super::kit::{Authentication, Client, grants, public, register};
use crate::support::{App, Caller, Folder, external_program};
use testkit::reserved_port;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/oauth/libraries");

/// Returns a server whose issuer is its own address, as under `cargo xtask dev`.
async fn reachable_app() -> App {
    let port = reserved_port();
    let base = format!("http://127.0.0.1:{port}");
    App::with(|config| {
        config.listen = format!("127.0.0.1:{port}").parse().unwrap();
        config.gateway.site.public_url.clone_from(&base);
        let oauth = config.oauth.as_mut().unwrap();
        oauth.issuer.clone_from(&base);
        oauth.audience = base;
    })
    .await
}

/// Returns the clients of each kind, with the name of their authentication.
async fn clients(app: &App) -> Vec<(&'static str, Client)> {
    let mut public = public();
    public.device = true;
    let mut confidential = public.clone();
    confidential.confidential = true;
    let basic = register(app, confidential.clone()).await;
    let post = Client { authentication: Authentication::Post, ..register(app, confidential).await };
    vec![("none", register(app, public).await), ("client_secret_basic", basic), ("client_secret_post", post)]
}

/// Runs a script for each kind of client. The script ends the grants that it creates.
async fn run_flows(command: impl Fn() -> Command) {
    let app = reachable_app().await;
    let ada: Caller = app.sign_in("ada").await;
    for (authentication, client) in clients(&app).await {
        let input = json!({
            "issuer": app.base,
            "session": ada.token,
            "clientId": client.id,
            "clientSecret": client.secret,
            "authentication": authentication,
            "redirectUri": client.redirect_uri,
            "scope": "account:read project:write",
            // Skip the device flow for this kind of client, because its polls take five seconds.
            "device": authentication != "client_secret_post",
        });
        let output = command().arg(input.to_string()).env("NO_PROXY", "*").kill_on_drop(true).output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{authentication}: {error}");
        let claims: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&claims["sub"], &claims["client_id"]), (&json!(ada.user_id), &json!(client.id)));
        assert_eq!((&claims["iss"], &claims["scope"]), (&json!(app.base), &json!("account:read project:write")));
        assert!(grants(&ada).await.is_empty(), "{authentication}");
        let created = format!(
            "SELECT count(*) FROM store.audit WHERE event = 'oauth.grant.create' AND data->>'client' = '{}'",
            client.id
        );
        let expected = if input["device"] == true { 2 } else { 1 };
        assert_eq!(app.db_rows(&created).await[0]["count"], expected, "{authentication}");
    }
}

/// Node finds packages in the folder `node_modules` next to a script.
fn scripts_with_packages(packages: &Path) -> Folder {
    let folder = Folder::new("oauth-libraries");
    for script in ["dashboard.mjs", "oauth4webapi.mjs", "openid-client.mjs"] {
        folder.write(script, std::fs::read(Path::new(SCRIPTS).join(script)).unwrap());
    }
    std::os::unix::fs::symlink(packages, folder.path.join("node_modules")).unwrap();
    folder
}

async fn run_with_node(script: &str) {
    let Some(packages) = external_program("SVC_TEST_OAUTH_LIBRARIES") else { return };
    let folder = scripts_with_packages(&packages);
    let script: PathBuf = folder.path.join(script);
    run_flows(|| {
        let mut command = Command::new("node");
        command.arg(&script);
        command
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oauth4webapi_runs_the_whole_flow() {
    run_with_node("oauth4webapi.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openid_client_runs_the_whole_flow() {
    run_with_node("openid-client.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authlib_runs_the_whole_flow() {
    let Some(packages) = external_program("SVC_TEST_AUTHLIB") else { return };
    run_flows(|| {
        let mut command = Command::new("python3");
        command.arg(Path::new(SCRIPTS).join("authlib_client.py")).env("PYTHONPATH", &packages);
        command
    })
    .await;
}
