//! The examples, deployed by `svc` and served by a node with `workerd`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::convergence::node_process::{Node, program, workerd};
use crate::process::Process;
use crate::support::client;

/// A signed-in `svc` with its own configuration folder.
pub struct Svc {
    pub home: PathBuf,
    api: String,
}

impl Svc {
    pub fn new(server: &Process) -> Self {
        let home = std::env::temp_dir().join(format!("svc-examples-{}", server.base.rsplit(':').next().unwrap()));
        std::fs::create_dir_all(&home).unwrap();
        let svc = Self { home, api: server.base.clone() };
        assert_eq!(svc.run(&["login", "--dev", "ada"]).0, 0);
        svc
    }

    /// Runs `svc --json`. Returns the exit code, the document and stderr.
    pub fn run(&self, arguments: &[&str]) -> (i32, Value, String) {
        let mut command = Command::new(program("svc"));
        command.args(arguments).args(["--json", "--api", &self.api]).env("XDG_CONFIG_HOME", &self.home);
        let output = command.env("NO_PROXY", "*").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default(), stderr)
    }

    /// Runs `svc` without `--json`. Returns its output.
    pub fn output(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(program("svc"));
        command.args(arguments).args(["--api", &self.api]).env("XDG_CONFIG_HOME", &self.home).env("NO_PROXY", "*");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    pub fn deploy(&self, folder: &Path, project: &str) -> (i32, Value, String) {
        self.run(&["deploy", folder.to_str().unwrap(), "--org", "ada", "--project", project, "--create"])
    }
}

impl Drop for Svc {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

pub fn example(name: &str) -> PathBuf {
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

/// Calls `attempt` until it returns a value.
pub async fn wait_for<T>(expected: &str, attempt: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.unwrap_or_else(|_| panic!("never {expected}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_book_stores_entries_and_its_moderator_deletes_them() {
    let Some(workerd) = workerd() else { return };
    let server = Process::start().await;
    let svc = Svc::new(&server);
    let storage = format!("file://{}/objects", svc.home.display());
    let node = Node::start(&server, &[("SVC_NODE_WORKERD", workerd), ("SVC_NODE_STORAGE", storage)]).await;
    let (code, deployed, stderr) = svc.deploy(&example("guest-book"), "guests");
    assert_eq!((code, &deployed["status"]), (0, &"serving".into()), "{stderr}");
    assert!(stderr.contains("enabled storage") && stderr.contains("bindings: env.assets, env.storage"), "{stderr}");

    let host = "guests-ada.localhost";
    let post_from = async |origin: &str, path: &str, cookie: &str, fields: &[(&str, &str)]| {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = client().post(format!("http://{}{path}", node.edge)).header("host", host);
        request.header("origin", origin).header("cookie", cookie).body(body).send().await.unwrap()
    };
    let own_origin = format!("https://{host}");
    let post =
        async |path: &str, cookie: &str, fields: &[(&str, &str)]| post_from(&own_origin, path, cookie, fields).await;
    let book = async || node.page(host, "/").await.unwrap();
    let id = wait_for("a form", async || {
        let page = node.page(host, "/").await?;
        Some(page.split_once(r#"name="id" value=""#)?.1.split('"').next()?.to_owned())
    });
    let id = id.await;
    // The second request with the same id stores nothing.
    for message in ["<b>first</b>", "second"] {
        let signed = post("/", "", &[("id", &id), ("name", "Ada"), ("message", message)]).await;
        assert_eq!(signed.status(), 303);
    }
    let page = book().await;
    assert!(page.contains("&lt;b&gt;first&lt;/b&gt;") && !page.contains("second"), "{page}");
    // The other ids contain a time in the far future, two minutes in the future, or two days in the past.
    let (time, random) = id.split_once('-').unwrap();
    let time: u64 = time.parse().unwrap();
    let at = |time: u64| format!("{time:016}-{random}");
    for id in ["../other".to_owned(), at(0), at(time - 120_000), at(time + 2 * 86_400_000)] {
        assert_eq!(post("/", "", &[("id", &id), ("name", "Ada"), ("message", "x")]).await.status(), 400, "{id}");
    }
    // A browser sends each line break of the form as two characters.
    let (sent, stored) = (format!("a{}\u{1f600}b", "\r\n".repeat(998)), format!("a{}\u{1f600}", "\n".repeat(998)));
    assert_eq!(post("/", "", &[("id", &at(time + 1)), ("name", "Ada"), ("message", &sent)]).await.status(), 303);
    let page = book().await;
    assert!(page.contains(&format!("<p>{stored}</p>")), "{page}");
    let large = "x".repeat(20_000);
    assert_eq!(post("/", "", &[("id", &id), ("name", "Ada"), ("message", &large)]).await.status(), 413);
    let index = client().get(format!("http://{}/", node.edge)).header("host", host).send().await.unwrap();
    assert_eq!(index.headers()["content-security-policy"], "default-src 'self'; frame-ancestors 'none'");

    let key = [("key", "open sesame")];
    assert_eq!(post("/moderator", "", &key).await.status(), 403);
    std::fs::write(svc.home.join("key"), "open sesame").unwrap();
    let key_file = svc.home.join("key").display().to_string();
    let set = ["secrets", "set", "ADMIN_KEY", "--from-file", &key_file, "--org", "ada", "--project", "guests"];
    assert_eq!(svc.run(&set).0, 0);
    let cookie = wait_for("a moderator", async || {
        let response = post("/moderator", "", &key).await;
        Some(response.headers().get("set-cookie")?.to_str().unwrap().split(';').next()?.to_owned())
    });
    let cookie = cookie.await;
    assert_eq!(post("/moderator", "", &[("key", "open")]).await.status(), 403);
    let foreign = post_from("http://other-ada.localhost", "/delete", &cookie, &[("id", &id)]).await;
    assert_eq!((foreign.status().as_u16(), book().await.contains("first")), (403, true));
    for (cookie, status, is_listed) in [("", 403, true), ("__Host-moderator=9.0", 403, true), (&cookie, 303, false)] {
        assert_eq!(post("/delete", cookie, &[("id", &id)]).await.status(), status);
        assert_eq!(book().await.contains("first"), is_listed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_code_reads_the_current_secrets() {
    let Some(workerd) = workerd() else { return };
    let server = Process::start().await;
    let node = Node::start(&server, &[("SVC_NODE_WORKERD", workerd)]).await;
    let svc = Svc::new(&server);
    let folder = svc.home.join("app");
    std::fs::create_dir_all(folder.join("worker")).unwrap();
    let secrets = svc.home.join("secrets.env");
    for (version, values) in [("1", "A=first\nOLD=x\n"), ("2", "A=second\nNEW=y\n")] {
        let code = format!("export default {{ fetch: (_, env) => Response.json({{ version: {version}, ...env }}) }}");
        std::fs::write(folder.join("worker/index.js"), code).unwrap();
        std::fs::write(folder.join("svc.json"), "{}").unwrap();
        let (code, deployed, stderr) = svc.deploy(&folder, "app");
        assert_eq!((code, &deployed["status"]), (0, &"serving".into()), "{stderr}");
        std::fs::write(&secrets, values).unwrap();
        let import = ["secrets", "import", secrets.to_str().unwrap(), "--org", "ada", "--project", "app"];
        assert_eq!(svc.run(&import).0, 0);
    }
    assert_eq!(svc.run(&["secrets", "delete", "OLD", "--org", "ada", "--project", "app"]).0, 0);
    let (code, _, stderr) = svc.run(&["rollback", "1", "--org", "ada", "--project", "app"]);
    assert_eq!(code, 0, "{stderr}");
    let seen = wait_for("the first version with the current secrets", async || {
        let seen: Value = serde_json::from_str(&node.page("app-ada.localhost", "/").await?).unwrap();
        (seen["version"] == 1 && seen["OLD"].is_null()).then_some(seen)
    });
    let seen = seen.await;
    assert_eq!((&seen["A"], &seen["NEW"]), (&"second".into(), &"y".into()), "{seen}");
}
