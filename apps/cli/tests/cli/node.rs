//! A real node.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder};
use tempfile::TempDir;
use testkit::{WITHOUT_SYSTEM_CERTIFICATES, reserved_port};

use crate::support::{Platform, program};

/// A node that runs worker code. Its log is `node.log` in the folder of the platform.
pub struct Node {
    pub edge: String,
    pub metrics: String,
    pub folder: TempDir,
    process: Child,
}

/// Returns the program `workerd`. Returns `None` without it, and prints that the test is skipped.
pub fn workerd() -> Option<PathBuf> {
    let found = std::env::var_os("SVC_TEST_WORKERD").map(PathBuf::from);
    if found.is_none() {
        eprintln!("SKIPPED: no workerd; run cargo xtask test, which installs it with npm, or set SVC_TEST_WORKERD");
    }
    found
}

impl Node {
    /// Adds the node to the platform, and starts it with these settings in addition to the defaults.
    pub fn start(platform: &Platform, settings: &[(&str, String)]) -> Self {
        let (edge, metrics) = (format!("127.0.0.1:{}", reserved_port()), format!("127.0.0.1:{}", reserved_port()));
        let added = Command::new(program("xtask"))
            .env("SVC_DATABASE_URL", platform.database.url())
            .args(["node", "add", "test"])
            .output()
            .unwrap();
        let token = String::from_utf8(added.stdout).unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let folder = TempDir::new().unwrap();
        let log = File::create(platform.folder.path().join("node.log")).unwrap();
        let process = Command::new(program("svc-node"))
            .env_clear()
            .envs([WITHOUT_SYSTEM_CERTIFICATES])
            .envs([
                ("SVC_EDGE_LISTEN", edge.as_str()),
                ("SVC_NODE_CORE_URL", &format!("http://{}", platform.internal)),
                ("SVC_NODE_TOKEN", token.trim()),
                ("SVC_NODE_DIR", &folder.path().join("node").display().to_string()),
                ("SVC_NODE_METRICS_LISTEN", &metrics),
            ])
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .stdout(log)
            .spawn()
            .unwrap();
        Self { edge, metrics, folder, process }
    }

    /// Returns a request to a project.
    pub fn request(&self, method: Method, host: &str, path: &str) -> RequestBuilder {
        // Without the certificates of the system, whose loading takes long in a debug build.
        let builder = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).tls_certs_only([]);
        let client = builder.build().unwrap();
        client.request(method, format!("http://{}{path}", self.edge)).header("Host", host)
    }

    /// Waits until the response to a GET has this text, and returns it.
    pub async fn wait_for(&self, host: &str, path: &str, expected: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        for _ in 0..2400 {
            if let Ok(response) = self.request(Method::GET, host, path).send().await {
                last = response.text().await.unwrap();
                if expected(&last) {
                    return last;
                }
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the last response was {last}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
