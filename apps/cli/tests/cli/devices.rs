//! Sign-in on a machine without a browser (`svc login --device`), and connected apps (`svc apps`).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use client::Client;
use client::types::{DevLogin, DeviceDecision};
use kernel::ClockRng;
use kernel::audit::Actor;
use oauth::{Clients, NewClient};
use serde_json::{Value, json};
use store::{Config, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Machine, Platform};

/// A platform with a registered client for `svc`.
struct Devices {
    platform: Platform,
    client_id: String,
}

impl Devices {
    async fn start() -> Self {
        let settings =
            [("SVC_OAUTH_ISSUER", "http://127.0.0.1:9".to_owned()), ("SVC_OAUTH_DEVICE_FLOW", "on".to_owned())];
        let platform = Platform::with(&settings).await;
        let url = kernel::Secret::new(platform.database.url());
        let clients = Clients::new(Store::new(&Config::new(url, "test"), ClockRng::system()).unwrap());
        let new = NewClient {
            name: "svc".to_owned(),
            redirect_uris: Vec::new(),
            scopes: None,
            confidential: false,
            device: true,
        };
        let client_id = clients.add(&Actor::operator("test"), new).await.unwrap().id.to_string();
        Self { platform, client_id }
    }

    /// Returns a client with a login session of this user.
    async fn session(&self, subject: &str) -> Client {
        let anonymous = Client::new(&self.platform.api, "test").unwrap();
        let login = DevLogin { subject: subject.to_owned(), email: None, name: None };
        let token = anonymous.auth_dev_login(&login).send().await.unwrap().value.token;
        anonymous.with_credential(token)
    }

    /// Starts a sign-in, and returns the code that the device shows.
    fn sign_in(&self, machine: &Machine) -> (Child, String) {
        let mut command = machine.command(&["login", "--device", "--client-id", &self.client_id]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let code = lines.filter_map(|line| Some(line.split_once("user_code=")?.1.to_owned())).next().unwrap();
        (child, code)
    }

    /// Returns a machine of Ada, signed in as a device.
    async fn signed_in(&self, ada: &Client) -> Machine {
        let machine = Machine::new(&self.platform.api);
        let (mut child, code) = self.sign_in(&machine);
        ada.oauth_device_decide(&DeviceDecision { approve: None, user_code: code }).send().await.unwrap();
        assert!(child.wait().unwrap().success());
        machine
    }
}

fn stored(machine: &Machine) -> Value {
    serde_json::from_str(&fs::read_to_string(machine.credentials()).unwrap()).unwrap()
}

/// Returns the only stored grant.
fn grant(credentials: &mut Value) -> &mut Value {
    credentials["grants"].as_object_mut().unwrap().values_mut().next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn device_is_signed_in_after_the_approval_and_signed_out_by_logout() {
    let devices = Devices::start().await;
    let ada = devices.session("ada").await;
    let machine = devices.signed_in(&ada).await;
    assert_eq!(machine.json(&["whoami"])["subject"], "ada");
    machine.svc(&["tokens", "list"]).succeeds();
    machine.svc(&["apps", "list"]).fails(3).stderr_contains("session_required");

    let session = devices.platform.ada();
    let apps = session.json(&["apps", "list"]);
    assert_eq!((&apps["items"][0]["clientName"], apps["items"].as_array().unwrap().len()), (&Value::from("svc"), 1));
    machine.svc(&["logout"]).succeeds();
    machine.svc(&["whoami"]).fails(3);
    assert_eq!(session.json(&["apps", "list"])["items"], Value::Array(Vec::new()));
    assert!(!fs::read_to_string(machine.credentials()).unwrap().contains("svc_ort_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_device_is_not_signed_in() {
    let devices = Devices::start().await;
    let ada = devices.session("ada").await;
    let machine = Machine::new(&devices.platform.api);
    let (mut child, code) = devices.sign_in(&machine);
    ada.oauth_device_decide(&DeviceDecision { approve: Some(false), user_code: code }).send().await.unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    machine.svc(&["whoami"]).fails(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_commands_refresh_an_expiring_token_once() {
    let devices = Devices::start().await;
    let ada = devices.session("ada").await;
    let machine = devices.signed_in(&ada).await;
    let mut credentials = stored(&machine);
    let before = grant(&mut credentials)["refreshToken"].clone();
    grant(&mut credentials)["expiresAt"] = 1.into();
    fs::write(machine.credentials(), credentials.to_string()).unwrap();

    let commands: Vec<Child> = (0..8).map(|_| machine.command(&["whoami"]).spawn().unwrap()).collect();
    for command in commands {
        let output = command.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut credentials = stored(&machine);
    assert_ne!(grant(&mut credentials)["refreshToken"], before);
    // A second refresh with one token would have ended the grant.
    machine.svc(&["whoami"]).succeeds();
}

#[tokio::test(flavor = "multi_thread")]
async fn device_whose_grant_was_revoked_must_sign_in_again() {
    let devices = Devices::start().await;
    let ada = devices.session("ada").await;
    let machine = devices.signed_in(&ada).await;
    let session = devices.platform.ada();
    let sid = session.json(&["apps", "list"])["items"][0]["sid"].as_str().unwrap().to_owned();
    session.svc(&["apps", "revoke", &sid]).succeeds();
    machine.svc(&["whoami"]).fails(3);
    session.svc(&["apps", "revoke", &sid]).fails(5);

    // The failed attempt to refresh the rejected access token removed both tokens.
    machine.svc(&["whoami"]).fails(3).stderr_contains("not signed in");
    assert!(!fs::read_to_string(machine.credentials()).unwrap().contains("svc_ort_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_a_sign_in_do_not_refresh_the_token() {
    let devices = Devices::start().await;
    let ada = devices.session("ada").await;
    let machine = devices.signed_in(&ada).await;
    let mut credentials = stored(&machine);
    grant(&mut credentials)["expiresAt"] = 1.into();
    fs::write(machine.credentials(), credentials.to_string()).unwrap();
    let session = devices.platform.ada();
    session.svc(&["orgs", "create", "acme"]).succeeds();
    let invited =
        session.svc(&["orgs", "invite", "grace@navy.example", "--role", "viewer", "--org", "acme"]).succeeds();
    machine.svc(&["invites", "show", invited.out.trim()]).succeeds();
    assert_eq!(stored(&machine), credentials);
    drop(devices);
    machine.svc(&["init", "--org", "ada", "--project", "site"]).succeeds();
    assert_eq!(stored(&machine), credentials);
}

/// Tests a refresh in the middle of a command, when the API rejects the access token.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_access_token_is_refreshed_once() {
    let devices = Devices::start().await;
    let ada = devices.session("ada").await;
    let machine = devices.signed_in(&ada).await;
    let mut credentials = stored(&machine);
    let before = grant(&mut credentials)["refreshToken"].clone();
    let access = credentials["credentials"].as_object_mut().unwrap().values_mut().next().unwrap();
    *access = "eyJhbGciOiJub25lIn0.e30.".into();
    fs::write(machine.credentials(), credentials.to_string()).unwrap();
    let commands: Vec<Child> = (0..4).map(|_| machine.command(&["whoami"]).spawn().unwrap()).collect();
    for command in commands {
        let output = command.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_ne!(grant(&mut stored(&machine))["refreshToken"], before);
    assert_eq!(devices.platform.ada().json(&["apps", "list"])["items"].as_array().unwrap().len(), 1);
    // If the environment provides the token, svc does not renew it.
    let mut command = machine.command(&["whoami"]);
    let output = command.env("SVC_CLI_TOKEN", "eyJhbGciOiJub25lIn0.e30.").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_sign_in_ends_the_previous_grant() {
    let devices = Devices::start().await;
    let ada = devices.session("ada").await;
    let machine = devices.signed_in(&ada).await;
    let session = devices.platform.ada();
    let apps = || session.json(&["apps", "list"])["items"].as_array().unwrap().clone();
    let first = apps();
    let (mut child, code) = devices.sign_in(&machine);
    ada.oauth_device_decide(&DeviceDecision { approve: None, user_code: code }).send().await.unwrap();
    assert!(child.wait().unwrap().success());
    let second = apps();
    assert_eq!(second.len(), 1);
    assert_ne!(first[0]["sid"], second[0]["sid"]);
    machine.svc(&["whoami"]).succeeds();
    machine.svc(&["login", "--dev", "ada"]).succeeds();
    assert_eq!(apps(), Vec::<Value>::new());
}

/// Starts an authorization server that answers polls with these error codes, and then repeats the last one. Returns its
/// address and the bodies of the polls.
async fn authorization_server(expires_in: u64, codes: &'static [&'static str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (base, polls) = (format!("http://{}", listener.local_addr().unwrap()), Arc::<Mutex<Vec<String>>>::default());
    let (seen, uri) = (Arc::clone(&polls), format!("{base}/device"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = String::new();
            let mut buffer = [0; 4096];
            // A form is complete with the last field.
            while !request.starts_with("GET") && !request.contains("client_id=") || !request.contains("\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(count) if count > 0 => request.push_str(&String::from_utf8_lossy(&buffer[..count])),
                    _ => break,
                }
            }
            let (status, body) = if request.starts_with("GET /.well-known/") {
                let endpoint = format!("{uri}/authorization");
                (200, json!({ "svc_cli_client_id": "app_metadata", "device_authorization_endpoint": endpoint }))
            } else if request.starts_with("POST /oauth/device ") {
                let device = json!({
                    "device_code": "device", "user_code": "AAAA-BBBB", "verification_uri": uri,
                    "verification_uri_complete": uri, "expires_in": expires_in, "interval": 0,
                });
                (200, device)
            } else {
                let mut polls = seen.lock().unwrap();
                let code = codes[polls.len().min(codes.len() - 1)];
                polls.push(request.split("\r\n\r\n").nth(1).unwrap().to_owned());
                (400, json!({ "error": code, "error_description": "a message" }))
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status} .\r\nContent-Type: application/json\r\nConnection: close\r\n");
            let response = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    (base, polls)
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_ends_with_the_decision_or_the_code() {
    let pending: &[&str] = &["authorization_pending"];
    for (expires_in, codes, polled) in [
        (600, &["authorization_pending", "authorization_pending", "expired_token"][..], 3),
        (600, &["authorization_pending", "access_denied"], 2),
        (600, &["invalid_client"], 1),
        // The code has already expired, although the server would continue to report it as pending.
        (0, pending, 0),
    ] {
        let (base, polls) = authorization_server(expires_in, codes).await;
        let machine = Machine::new(&base);
        let ran = machine.svc(&["login", "--device"]).fails(1);
        // The error has no request ID.
        assert!(!ran.err.contains(", request "), "{ran:?}");
        let polls = polls.lock().unwrap();
        assert_eq!(polls.len(), polled, "{codes:?}");
        assert!(polls.iter().all(|poll| poll.contains("client_id=app_metadata")), "{polls:?}");
    }
}
