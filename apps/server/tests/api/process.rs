//! The server as a process: `svc-server` with its settings.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::web;
use futures_util::StreamExt as _;
use sandbox::{Certificate, CodeHostServer, Encryption, Endpoint, ResponseFault, SmtpFault, SmtpServer};
use serde_json::{Value, json};
use testkit::{TestDatabase, reserved_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{client, eventually, site};

pub struct Process {
    child: Child,
    pub base: String,
    pub internal: String,
    folder: PathBuf,
    settings: Vec<(&'static str, String)>,
    pub database: Arc<TestDatabase>,
}

fn settings(
    database: &TestDatabase,
    folder: &std::path::Path,
    public: u16,
    internal: u16,
) -> Vec<(&'static str, String)> {
    vec![
        ("SVC_DATABASE_URL", database.url()),
        ("SVC_LISTEN", format!("127.0.0.1:{public}")),
        ("SVC_INTERNAL_LISTEN", format!("127.0.0.1:{internal}")),
        ("SVC_PUBLIC_URL", format!("http://127.0.0.1:{public}")),
        ("SVC_DASHBOARD_URL", "http://localhost:3000".into()),
        ("SVC_ENABLE_DEV_AUTH", "on".into()),
        ("SVC_SEALING_KEYS", "test:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into()),
        ("SVC_PLATFORM_DOMAIN", "localhost".into()),
        ("SVC_FALLBACK_ORIGIN", "fallback.localhost".into()),
        ("SVC_BUNDLE_STORE", format!("file://{}/bundles", folder.display())),
    ]
}

fn command(settings: &[(&str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-server"));
    command.env_clear().envs(settings.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Process {
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts a process with these settings in addition to the defaults.
    pub async fn with(extra: &[(&'static str, String)]) -> Self {
        Self::on(TestDatabase::create().await, extra).await
    }

    /// Starts a process that listens on this port, which the caller reserved.
    pub async fn at(public: u16, extra: &[(&'static str, String)]) -> Self {
        let process = Self::spawn_at(public, TestDatabase::create().await, extra);
        process.wait_until_ready().await;
        process
    }

    /// Starts a process on this database, unless `extra` overrides it.
    pub async fn on(database: TestDatabase, extra: &[(&'static str, String)]) -> Self {
        let process = Self::spawn(database, extra);
        process.wait_until_ready().await;
        process
    }

    /// Starts a process without waiting until it is ready.
    pub fn spawn(database: TestDatabase, extra: &[(&'static str, String)]) -> Self {
        Self::spawn_at(reserved_port(), database, extra)
    }

    fn spawn_at(public: u16, database: TestDatabase, extra: &[(&'static str, String)]) -> Self {
        let internal = reserved_port();
        let folder = std::env::temp_dir().join(format!("svc-process-{public}"));
        let settings = [settings(&database, &folder, public, internal), extra.to_vec()].concat();
        let log = std::fs::File::create(folder.with_extension("log")).unwrap();
        let child = command(&settings).stdout(log).spawn().unwrap();
        let (base, internal) = (format!("http://127.0.0.1:{public}"), format!("http://127.0.0.1:{internal}"));
        Self { child, base, internal, folder, settings, database: Arc::new(database) }
    }

    pub async fn wait_until_ready(&self) {
        eventually("the server is ready", async || {
            let response = client().get(format!("{}/readyz", self.base)).send().await.ok()?;
            (response.status() == 200).then_some(())
        })
        .await;
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub async fn kill_and_restart(&mut self) {
        self.kill();
        self.restart().await;
    }

    /// Starts the process again after `kill`, and waits until it is ready.
    pub async fn restart(&mut self) {
        self.child = command(&self.settings).spawn().unwrap();
        self.wait_until_ready().await;
    }

    pub async fn json(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Value {
        let mut request = client().request(method.parse().unwrap(), format!("{}{path}", self.base)).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub async fn sign_in(&self) -> String {
        let session = self.json("", "POST", "/v1/auth/dev/login", Some(json!({ "subject": "ada" }))).await;
        session["token"].as_str().unwrap().to_owned()
    }

    /// Returns the log of the process.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.with_extension("log")).unwrap()
    }

    /// Returns the peak of the process's resident memory, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    fn terminate(&self) {
        let id = rustix::process::Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits until the process exits and returns its status.
    async fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the response of `/metrics`, empty while the process does not listen.
    pub async fn metrics(&self) -> String {
        let Ok(response) = client().get(format!("{}/metrics", self.internal)).send().await else {
            return String::new();
        };
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    }

    /// Returns the number of SQL statements so far, from the metrics.
    async fn statements(&self) -> u64 {
        let metrics = self.metrics().await;
        let counts = metrics.lines().filter(|line| line.starts_with("svc_db_statement_duration_seconds_count"));
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(self.folder.with_extension("log"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_with_a_session_cost_at_most_two_statements() {
    let process = Process::start().await;
    let token = process.sign_in().await;
    process.json(&token, "POST", "/v1/orgs/ada/projects", Some(json!({ "name": "site" }))).await;
    let upload = client()
        .post(format!("{}/v1/orgs/ada/projects/site/deployments", process.base))
        .bearer_auth(&token)
        .header("content-type", "application/gzip")
        .body(site("page"));
    assert_eq!(upload.send().await.unwrap().status(), 201);
    for (path, each) in [
        ("/v1/me", 2),
        ("/v1/orgs", 2),
        ("/v1/orgs/ada/members", 2),
        ("/v1/orgs/ada/projects", 2),
        ("/v1/orgs/ada/projects/site", 2),
        ("/v1/orgs/ada/projects/site/overview", 3),
    ] {
        let mut costs = Vec::new();
        for _ in 0..5 {
            let before = process.statements().await;
            for _ in 0..10 {
                process.json(&token, "GET", path, None).await;
            }
            costs.push(process.statements().await - before);
        }
        // Background jobs may run statements in between, so the lowest cost counts.
        let is_limited = costs.iter().min().is_some_and(|cost| (1..=10 * each).contains(cost));
        assert!(is_limited, "10 requests of {path} cost {costs:?} statements");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_waits_for_an_upload() {
    let mut process = Process::start().await;
    let token = process.sign_in().await;
    process.json(&token, "POST", "/v1/orgs/ada/projects", Some(json!({ "name": "site" }))).await;
    let whole = site(&"page ".repeat(5000));
    let (first, second) = (whole[..50].to_vec(), whole[50..].to_vec());
    let (resume, resumed) = tokio::sync::oneshot::channel::<()>();
    let first = futures_util::stream::iter([Ok::<_, std::io::Error>(first)]);
    let slow = first.chain(futures_util::stream::once(async move {
        resumed.await.unwrap();
        Ok(second)
    }));
    let upload = client()
        .post(format!("{}/v1/orgs/ada/projects/site/deployments", process.base))
        .bearer_auth(&token)
        .header("content-type", "application/gzip")
        .body(reqwest::Body::wrap_stream(slow))
        .send();
    let address = process.base.strip_prefix("http://").unwrap();
    let (upload, ()) = tokio::join!(upload, async {
        let is_upload = |line: &str| line.starts_with("svc_uploads_in_progress{") && line.contains("\"bundle\"");
        let has_begun = async || {
            let metrics = process.metrics().await;
            metrics.lines().any(|line| is_upload(line) && line.ends_with(" 1")).then_some(())
        };
        eventually("the upload is in progress", has_begun).await;
        process.terminate();
        let is_stopping = async || TcpStream::connect(address).await.is_err().then_some(());
        eventually("the listener closes", is_stopping).await;
        resume.send(()).unwrap();
    });
    assert_eq!(upload.unwrap().status(), 201);
    assert!(process.wait_for_exit().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_connection_is_closed_after_a_response() {
    let mut process = Process::start().await;
    let address = process.base.strip_prefix("http://").unwrap().to_owned();
    let mut connection = TcpStream::connect(&address).await.unwrap();
    process.terminate();
    loop {
        let request = format!("GET /v1/config HTTP/1.1\r\nhost: {address}\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        while !response.ends_with('}') {
            let mut bytes = [0; 4096];
            let read = connection.read(&mut bytes).await.unwrap();
            assert_ne!(read, 0, "the connection was closed without a response: {response:?}");
            response.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        if response.to_lowercase().contains("connection: close") {
            break;
        }
    }
    assert!(process.wait_for_exit().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_setting_aborts_startup_with_one_line() {
    let database = TestDatabase::create().await;
    let folder = std::env::temp_dir();
    for (name, value) in [
        ("SVC_DATABASE_URL", None),
        ("SVC_DATABASE_URL", Some("mysql://user:hunter2@host/db")),
        ("SVC_DATABASE_URL", Some("postgres://user:hunter2@host/db?sslmode=prefer")),
        ("SVC_LISTEN", Some("invalid")),
        ("SVC_UNKNOWN", Some("1")),
        ("SVC_SEALING_KEYS", Some("hunter2")),
        ("SVC_SEALING_KEYS", Some("")),
        ("SVC_DASHBOARD_URL", Some("*")),
        ("SVC_PUBLIC_URL", Some("https://api.example")),
        ("SVC_LIMITS", Some("/nowhere.toml")),
        ("SVC_MAX_CONCURRENT_REQUESTS", Some("0")),
        ("SVC_DATABASE_CONNECTIONS", Some("0")),
        ("SVC_DATABASE_URL", Some("host=h user=a password=hunter2 sslmode=require")),
        ("SVC_BUNDLE_STORE", Some("ftp://host")),
        ("SVC_BUNDLE_STORE", Some("s3:///prefix")),
        ("SVC_BUNDLE_STORE", Some("s3://key:hunter2@bundles")),
        ("SVC_BUNDLE_STORE", Some("s3://bundles/../others")),
        // The credentials are missing.
        ("SVC_BUNDLE_STORE", Some("s3://bundles/prefix")),
        ("SVC_DNS_LISTEN", Some("invalid")),
        // The TSIG key is missing.
        ("SVC_DNS_LISTEN", Some("127.0.0.1:0")),
        ("SVC_DNS_SECONDARIES", Some("192.0.2.1")),
        ("SVC_DNS_TSIG", Some("xfr:hmac-md5:aHVudGVyMg==")),
        ("SVC_CODEHOST_AUTHORIZE_URL", Some("http://code.example")),
        ("SVC_CODEHOST_TOKEN_URL", Some("http://code.example")),
        ("SVC_CODEHOST_USER_URL", Some("http://10.0.0.1")),
        ("SVC_OAUTH_ISSUER", Some("nonsense")),
        ("SVC_OAUTH_ISSUER", Some("https://api.example/path")),
        ("SVC_OAUTH_ISSUER", Some("https://api.example?x=1")),
        ("SVC_OAUTH_ISSUER", Some("https://api.example#x")),
        ("SVC_OAUTH_ISSUER", Some("https://user:hunter2@api.example")),
        ("SVC_OAUTH_ISSUER", Some("http://api.example")),
        // The issuer is missing.
        ("SVC_OAUTH_AUDIENCE", Some("https://api.example")),
        ("SVC_OAUTH_DEVICE_FLOW", Some("on")),
        ("SVC_OAUTH_DEVICE_FLOW", Some("maybe")),
        ("SVC_OAUTH_REFRESH_GRACE", Some("61s")),
        ("SVC_OAUTH_REFRESH_GRACE", Some("-1s")),
        ("SVC_OAUTH_REFRESH_GRACE", Some("1h")),
        // The device flow is off.
        ("SVC_OAUTH_CLI_CLIENT_ID", Some("app_01h455vb4pex5vsknk084sn02q")),
        ("SVC_OAUTH_CLI_CLIENT_ID", Some("hunter2")),
        // One of the two settings is missing.
        ("SVC_LENDING_URL", Some("https://lending.example")),
        ("SVC_LENDING_SECRET", Some("hunter2")),
        // Both settings are set, but the secret is malformed.
        ("SVC_LENDING_SECRET", Some("whsec_hunter2")),
    ] {
        let mut settings = settings(&database, &folder, reserved_port(), reserved_port());
        settings.retain(|(known, _)| *known != name);
        settings.extend(value.map(|value| (name, value.to_owned())));
        if value == Some("whsec_hunter2") {
            settings.push(("SVC_LENDING_URL", "https://lending.example".to_owned()));
        }
        if name.starts_with("SVC_CODEHOST_") {
            let client = [("SVC_CODEHOST_CLIENT_ID", "svc"), ("SVC_CODEHOST_CLIENT_SECRET", "hunter2")];
            settings.extend(client.map(|(name, value)| (name, value.to_owned())));
        }
        let output = command(&settings).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {line}");
        let named = match (name, value) {
            ("SVC_PUBLIC_URL", _) => "SVC_ENABLE_DEV_AUTH",
            (_, Some("s3://bundles/prefix")) => "AWS_ACCESS_KEY_ID",
            (_, Some("127.0.0.1:0")) => "SVC_DNS_TSIG",
            ("SVC_OAUTH_AUDIENCE", _) | (_, Some("on")) => "SVC_OAUTH_ISSUER",
            ("SVC_LENDING_URL", _) => "SVC_LENDING_SECRET",
            ("SVC_LENDING_SECRET", Some("hunter2")) => "SVC_LENDING_URL",
            _ => name,
        };
        assert!(line.contains(named) && line.trim().lines().count() == 1, "{name}: {line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_listener_that_cannot_be_served_aborts_startup() {
    let database = TestDatabase::create().await;
    let folders = tempfile::tempdir().unwrap();
    let certificates = |name: &str, files: &[(&str, &str)]| {
        let folder = folders.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        for (file, text) in files {
            std::fs::write(folder.join(file), text).unwrap();
        }
        folder.display().to_string()
    };
    let [own, other] = [(); 2].map(|()| Certificate::generate_for(&["api.example"]));
    let stranger = Certificate::generate_for(&["other.example"]);
    let valid = certificates("valid", &[("api.example.crt", own.chain()), ("api.example.key", own.key())]);
    let empty = certificates("empty", &[]);
    let missing = certificates("missing", &[("api.example.crt", own.chain())]);
    let mismatched = certificates("key", &[("api.example.crt", own.chain()), ("api.example.key", other.key())]);
    let mistaken = certificates("name", &[("api.example.crt", stranger.chain()), ("api.example.key", stranger.key())]);
    let nowhere = folders.path().join("nowhere").display().to_string();
    let (public, port) = (reserved_port(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [free, used] = [0, port.local_addr().unwrap().port()].map(|port| format!("127.0.0.1:{port}"));
    let no_certificate = "has no usable certificate for api.example";
    let url = "https://api.example";
    for (url, listen, folder, error, logged) in [
        (url, None, Some(&valid), "SVC_TLS_LISTEN is malformed: required with SVC_TLS_CERTIFICATES", ""),
        (url, Some(&free), None, "requires SVC_ACME_DIRECTORIES or SVC_TLS_CERTIFICATES", ""),
        ("http://api.example", Some(&free), Some(&valid), "requires an https SVC_PUBLIC_URL with a hostname", ""),
        ("https://192.0.2.1", Some(&free), Some(&valid), "requires an https SVC_PUBLIC_URL with a hostname", ""),
        (url, Some(&used), Some(&valid), "SVC_TLS_LISTEN 127.0.0.1:", ""),
        (url, Some(&free), Some(&nowhere), "SVC_TLS_CERTIFICATES: cannot read the folder", ""),
        (
            url,
            Some(&free),
            Some(&format!("{valid}/api.example.crt")),
            "SVC_TLS_CERTIFICATES: cannot read the folder",
            "",
        ),
        (url, Some(&free), Some(&empty), no_certificate, ""),
        (url, Some(&free), Some(&missing), no_certificate, "the .key file is missing"),
        (url, Some(&free), Some(&mismatched), no_certificate, "the private key cannot be used"),
        (url, Some(&free), Some(&mistaken), no_certificate, "the certificate is not valid for api.example"),
    ] {
        let mut settings = settings(&database, folders.path(), public, reserved_port());
        settings.retain(|(name, _)| !["SVC_PUBLIC_URL", "SVC_ENABLE_DEV_AUTH"].contains(name));
        settings.push(("SVC_PUBLIC_URL", url.to_owned()));
        settings.extend(listen.map(|listen| ("SVC_TLS_LISTEN", listen.clone())));
        settings.extend(folder.map(|folder| ("SVC_TLS_CERTIFICATES", folder.clone())));
        let output = command(&settings).stdout(Stdio::piped()).output().unwrap();
        let [line, log] = [output.stderr, output.stdout].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.contains("SVC_TLS_") && line.contains(error) && line.trim().lines().count() == 1, "{line}");
        assert!(log.contains(logged) && !log.contains("PRIVATE KEY"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_receives_the_trace_with_a_span_per_statement() {
    let collected = Arc::new(Mutex::new(Vec::new()));
    let bodies = collected.clone();
    let collector = actix_web::HttpServer::new(move || {
        let bodies = bodies.clone();
        let take = move |body: web::Bytes| {
            bodies.lock().unwrap().extend_from_slice(&body);
            async { actix_web::HttpResponse::Ok().finish() }
        };
        actix_web::App::new().route("/v1/traces", web::post().to(take))
    });
    let collector = collector.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", collector.addrs()[0]);
    let collector = tokio::spawn(collector.run());

    let mut process = Process::with(&[("SVC_OTLP_URL", address)]).await;
    let token = process.sign_in().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let request = client().get(format!("{}/v1/me", process.base)).bearer_auth(&token);
    let response = request.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    process.terminate();
    assert!(process.wait_for_exit().await.success());
    collector.abort();

    let sent = collected.lock().unwrap();
    let holds = |bytes: &[u8]| sent.windows(bytes.len()).filter(|window| *window == bytes).count();
    let id: Vec<u8> = (0..32).step_by(2).map(|at| u8::from_str_radix(&trace[at..at + 2], 16).unwrap()).collect();
    // Spans of the request and its two statements.
    assert!(holds(&id) >= 3, "{} spans of the trace", holds(&id));
    assert!(holds(b"identity.sessions") >= 1 && holds(b"request_id") >= 1);
    assert_eq!(holds(token.as_bytes()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_duplicated_at_most_once_after_a_crash() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let mail = [("SVC_SMTP_URL", smtp.url()), ("SVC_MAIL_FROM", "Svc <no-reply@svc.example>".to_owned())];
    let mut process = Process::with(&mail).await;
    let token = process.sign_in().await;
    // The SMTP server accepts the mail, but does not respond to QUIT. So the delivery is not recorded before the crash.
    smtp.inject(Some(SmtpFault::HangAtQuit));
    let invite = json!({ "email": "bob@example.org", "role": "viewer" });
    process.json(&token, "POST", "/v1/orgs/ada/invites", Some(invite)).await;
    smtp.wait_for(1).await;
    process.kill_and_restart().await;
    smtp.inject(None);

    let sent = async || process.json(&token, "GET", "/v1/orgs/ada/invites", None).await["items"][0]["sentAt"].clone();
    assert_eq!(sent().await, Value::Null);
    // End the lease of the killed process instead of waiting for it.
    process.database.run("UPDATE store.outbox SET next_attempt_at = created_at").await;
    eventually("the mail is recorded as sent", async || sent().await.is_string().then_some(())).await;
    let received = smtp.wait_for(2).await;
    let id = |raw: &[u8]| {
        let text = String::from_utf8_lossy(raw).into_owned();
        text.lines().find(|line| line.starts_with("Message-ID:")).unwrap().to_owned()
    };
    let ids: Vec<String> = received.iter().map(|mail| id(&mail.raw)).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1], "the duplicate has another Message-ID");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_contains_no_credentials_codes_or_contacts() {
    let host = CodeHostServer::start().await;
    let smtp = SmtpServer::start_with_auth(Encryption::None, "svc", "smtp-hush").await;
    let settings = [
        ("SVC_LOG", "trace".into()),
        ("SVC_SMTP_URL", smtp.url().replace("//", "//svc:smtp-hush@")),
        ("SVC_MAIL_FROM", "hello@svc.example".into()),
    ];
    let mut process = Process::with(&[&host.client().settings()[..], &settings].concat()).await;
    let mut secrets = vec!["svc-client-hush".to_owned(), "smtp-hush".into(), "code_0".into(), "gho_0".into()];
    secrets.extend(["ada@code.example".to_owned(), "bob@mail.example".into()]);
    let redirect = url::form_urlencoded::byte_serialize(process.base.as_bytes()).collect::<String>();
    let sign_in = async || {
        let start = format!("{}/v1/auth/codehost/start?redirect={redirect}", process.base);
        let started = client().get(start).send().await.unwrap();
        let header = |response: &reqwest::Response, name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let cookie = header(&started, "set-cookie").split(';').next().unwrap().to_owned();
        let authorize = header(&started, "location");
        let query: Vec<(String, String)> = url::Url::parse(&authorize).unwrap().query_pairs().into_owned().collect();
        let state = query.into_iter().find(|(name, _)| name == "state").unwrap().1;
        let back = header(&client().get(authorize).send().await.unwrap(), "location");
        let finished = client().get(back).header("cookie", &cookie).send().await.unwrap();
        let fragment = header(&finished, "location").split_once('#').unwrap().1.to_owned();
        let params: Vec<(String, String)> = url::form_urlencoded::parse(fragment.as_bytes()).into_owned().collect();
        (params[0].clone(), vec![state, cookie.split_once('=').unwrap().1.to_owned()])
    };
    host.inject(Endpoint::User, Some(ResponseFault::Json(json!({ "id": "ada@code.example", "login": 7 }))));
    let ((name, _), spent) = sign_in().await;
    assert_eq!(name, "error");
    secrets.extend(spent);
    host.inject(Endpoint::User, None);
    let ((name, session), spent) = sign_in().await;
    assert_eq!(name, "token");
    secrets.extend(spent);

    let body = json!({ "name": "ci", "scopes": ["account:read"] });
    let token = process.json(&session, "POST", "/v1/me/tokens", Some(body)).await["token"].as_str().unwrap().to_owned();
    process.json(&token, "GET", "/v1/me", None).await;
    let invite = json!({ "email": "bob@mail.example", "role": "viewer" });
    let invite = process.json(&session, "POST", "/v1/orgs/ada/invites", Some(invite)).await;
    let link = invite["acceptUrl"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    process.json("", "GET", &format!("/v1/invites/{link}"), None).await;
    smtp.wait_for(1).await;
    let wrong = format!("svc_pat_{}", "Wrong".repeat(9));
    for credential in [wrong.as_str(), "nonsense-credential"] {
        let refused = client().get(format!("{}/v1/me", process.base)).bearer_auth(credential).send().await.unwrap();
        assert_eq!(refused.status(), 401);
    }
    secrets.extend([session, token, link, wrong, "nonsense-credential".to_owned()]);
    secrets.push("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned());
    process.terminate();
    assert!(process.wait_for_exit().await.success());
    let log = process.log();
    assert!(log.lines().count() > 50);
    for secret in &secrets {
        let line = log.lines().find(|line| line.contains(secret.as_str()));
        assert!(line.is_none(), "{secret} is in the log: {line:?}");
    }
}
