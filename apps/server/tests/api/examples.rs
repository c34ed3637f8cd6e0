//! The examples, deployed by `svc` and served by a node with `workerd`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::convergence::node_process::{Node, program, workerd};
use crate::process::Process;
use crate::support::client;

/// A signed-in `svc` with its own configuration folder.
struct Svc {
    home: PathBuf,
    api: String,
}

impl Svc {
    fn new(server: &Process) -> Self {
        let home = std::env::temp_dir().join(format!("svc-examples-{}", server.base.rsplit(':').next().unwrap()));
        std::fs::create_dir_all(&home).unwrap();
        let svc = Self { home, api: server.base.clone() };
        assert_eq!(svc.run(&["login", "--dev", "ada"]).0, 0);
        svc
    }

    /// Runs `svc --json`. Returns the exit code, the document and stderr.
    fn run(&self, arguments: &[&str]) -> (i32, Value, String) {
        let mut command = Command::new(program("svc"));
        command.args(arguments).args(["--json", "--api", &self.api]).env("XDG_CONFIG_HOME", &self.home);
        let output = command.env("NO_PROXY", "*").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default(), stderr)
    }

    fn deploy(&self, folder: &Path, project: &str) -> (i32, Value, String) {
        self.run(&["deploy", folder.to_str().unwrap(), "--org", "ada", "--project", project, "--create"])
    }
}

impl Drop for Svc {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_served_and_a_worker_that_fails_to_start_is_reported() {
    let Some(workerd) = workerd() else { return };
    let server = Process::start().await;
    let node = Node::start(&server, &[("SVC_NODE_WORKERD", workerd)]).await;
    let svc = Svc::new(&server);
    let (code, deployed, stderr) = svc.deploy(&example("static-site"), "site");
    assert_eq!((code, &deployed["status"]), (0, &"serving".into()), "{stderr}");
    assert!(node.page("site-ada.localhost", "/").await.unwrap().contains("<h1>Hello</h1>"));

    let (code, deployed, stderr) = svc.deploy(&example("worker-site"), "code");
    assert_eq!((code, &deployed["status"], &deployed["hasWorker"]), (0, &"serving".into(), &true.into()), "{stderr}");
    let host = "code-ada.localhost";
    assert!(node.page(host, "/?name=Ada").await.unwrap().contains("Hello, Ada"));
    assert!(node.page(host, "/api/time").await.unwrap().contains("\"now\""));
    let echo = client().post(format!("http://{}/api/echo", node.edge)).header("host", host).body("sent");
    assert_eq!(echo.send().await.unwrap().text().await.unwrap(), "sent");
    let style = std::fs::read_to_string(example("worker-site/assets/style.css")).unwrap();
    assert_eq!(node.page(host, "/style.css").await, Some(style));

    // A worker that fails to start is reported, and the previous version keeps serving.
    let broken = svc.home.join("broken");
    std::fs::create_dir_all(broken.join("worker")).unwrap();
    std::fs::write(broken.join("svc.json"), "{}").unwrap();
    std::fs::write(broken.join("worker/index.js"), "import './missing.js'\nexport default {}").unwrap();
    let (code, deployed, stderr) = svc.deploy(&broken, "code");
    assert_eq!((code, &deployed["status"], &deployed["live"]), (8, &"failed".into(), &true.into()), "{stderr}");
    assert!(deployed["statusMessage"].as_str().unwrap().contains("missing.js"), "{deployed}");
    assert!(node.page(host, "/?name=Ada").await.unwrap().contains("Hello, Ada"));
    let (_, list, _) = svc.run(&["deployments", "--org", "ada", "--project", "code"]);
    let statuses: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, ["failed", "serving"]);
}
