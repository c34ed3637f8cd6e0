//! Sign-in on a machine without a browser (`svc login --device`), and connected apps (`svc apps`).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use client::Client;
use client::types::{DevLogin, DeviceDecision};
use kernel::ClockRng;
use kernel::audit::Actor;
use oauth::{Clients, NewClient};
use serde_json::Value;
use store::{Config, Store};

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

    /// A client with a login session of this user.
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

    /// A machine of Ada, signed in as a device.
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

/// The only stored grant.
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

    let mut credentials = stored(&machine);
    grant(&mut credentials)["expiresAt"] = 1.into();
    fs::write(machine.credentials(), credentials.to_string()).unwrap();
    machine.svc(&["whoami"]).fails(3).stderr_contains("not signed in");
    assert!(!fs::read_to_string(machine.credentials()).unwrap().contains("svc_ort_"));
}
