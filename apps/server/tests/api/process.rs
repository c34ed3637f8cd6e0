//! The server as a process: `svc-server` with its settings.

pub mod collector;
mod startup;
mod stop;
mod telemetry;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{TestDatabase, reserved_port};

use crate::convergence::node_process;
use crate::support::{client, eventually};

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
    let mut command = node_process::command("svc-server", settings);
    command.stderr(Stdio::piped());
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

    /// Stops the process, which then exports its last traces.
    pub async fn stop(&mut self) {
        self.terminate();
        assert!(self.wait_for_exit().await.success());
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
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(self.folder.with_extension("log"));
    }
}
