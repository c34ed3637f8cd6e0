//! The test fixture: a server, a `svc-git` process, and git clients.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use convergence::{NodeKind, Nodes};
use diesel::QueryDsl as _;
use diesel_async::{AsyncConnection as _, RunQueryDsl as _};
use kernel::audit::Actor;
use kernel::{ClockRng, Secret};
use serde_json::{Value, json};
use server::Config;
use store::Store;
use tempfile::TempDir;
use testkit::{reserved_port, write_program};

use super::{REPO, REPOS};
use crate::convergence::node_process::{command, spawn};
use crate::support::{App, Caller, client, eventually};

/// A server with Ada's project `site`, and a git node.
pub struct Kit {
    pub app: App,
    pub ada: Caller,
    /// Ada's token with the scope `git:write`.
    pub token: String,
    pub node: GitNode,
    /// The folder of the clones.
    folder: tempfile::TempDir,
}

/// A `svc-git` process.
pub struct GitNode {
    pub http: u16,
    pub ssh: u16,
    child: Child,
    settings: Vec<(&'static str, String)>,
    folder: tempfile::TempDir,
}

/// A clone of a repository.
pub struct Clone {
    path: PathBuf,
    environment: Vec<(String, String)>,
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(|_| {}, &[]).await
    }

    /// Starts with further settings of the node.
    pub async fn start_with(more: &[(&'static str, String)]) -> Self {
        Self::with(|_| {}, more).await
    }

    /// Starts a server whose configuration `change` modifies, and a node with further settings.
    pub async fn with(change: impl FnOnce(&mut Config), more: &[(&'static str, String)]) -> Self {
        let (http, ssh) = (reserved_port(), reserved_port());
        let app = App::with(|config| {
            config.gateway.site.git_url = Some(format!("http://127.0.0.1:{http}"));
            config.gateway.site.ssh_host = Some(format!("127.0.0.1:{ssh}"));
            change(config);
        })
        .await;
        let ada = app.sign_in("ada").await;
        ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        let node = GitNode::at(&app.database.url(), &app.internal, http, ssh, more).await;
        let token = token(&ada, &["git:write"]).await;
        Self { app, ada, token, node, folder: tempfile::tempdir().unwrap() }
    }

    /// Creates a repository.
    pub async fn create(&self, name: &str) {
        self.ada.post(REPOS, json!({ "name": name })).await.expect(201);
    }

    /// Returns the URL of a repository of the project `site` over HTTP, with this token.
    pub fn url(&self, token: &str, name: &str) -> String {
        let user = if token.is_empty() { String::new() } else { format!("git:{token}@") };
        format!("http://{user}127.0.0.1:{}/ada/site/{name}.git", self.node.http)
    }

    /// Returns the URL over SSH.
    pub fn ssh_url(&self, name: &str) -> String {
        format!("ssh://git@127.0.0.1:{}/ada/site/{name}.git", self.node.ssh)
    }

    /// Creates an empty repository of a client, whose `origin` contains Ada's token.
    pub fn init(&self, name: &str) -> Clone {
        let clone = self.clone_at(name);
        std::fs::create_dir_all(&clone.path).unwrap();
        clone.git(&["init", "--quiet", "--initial-branch=main"]);
        clone.git(&["remote", "add", "origin", &self.url(&self.token, "app")]);
        clone
    }

    /// Creates `app`, whose pushes to `main` are deployed, and a client with a token that may deploy.
    pub async fn deploying(&self) -> Clone {
        self.ada.post(REPOS, json!({ "name": "app", "deployBranch": "main" })).await.expect(201);
        let work = self.init("work");
        let token = token(&self.ada, &["git:write", "deploy"]).await;
        work.git(&["remote", "set-url", "origin", &self.url(&token, "app")]);
        work
    }

    /// Returns the deployments of the project `site`, oldest first.
    pub async fn deployments(&self) -> Vec<Value> {
        let listed = self.ada.get("/v1/orgs/ada/projects/site/deployments").await;
        let mut deployments = listed.expect(200)["items"].as_array().unwrap().clone();
        deployments.reverse();
        deployments
    }

    /// Clones a URL into a folder.
    pub fn clone(&self, url: &str, name: &str, arguments: &[&str]) -> Clone {
        let clone = self.clone_at(name);
        std::fs::create_dir_all(&clone.path).unwrap();
        clone.git(&[&["clone", "--quiet"], arguments, &[url, "."]].concat());
        clone
    }

    fn clone_at(&self, name: &str) -> Clone {
        Clone::at(self.folder.path(), name)
    }

    /// Generates a key of this type for the client, and registers it for a user. Returns its id.
    pub async fn register_key(&self, user: &Caller, arguments: &[&str]) -> String {
        let key = self.key();
        for file in [key.clone(), key.with_extension("pub")] {
            let _ = std::fs::remove_file(file);
        }
        let mut generate = Command::new("ssh-keygen");
        generate.args(["-q", "-N", "", "-f"]).arg(&key).args(arguments);
        assert!(generate.status().unwrap().success());
        let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
        let created = user.post("/v1/me/ssh-keys", json!({ "title": "laptop", "key": public.trim() })).await;
        created.expect(201)["id"].as_str().unwrap().to_owned()
    }

    /// Returns the path of the private key of the client.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Waits until `app` has this number of ref updates, and returns them, oldest first.
    pub async fn ref_updates(&self, count: usize) -> Vec<Value> {
        eventually("the control plane receives the ref updates", async || {
            let updates = self.ada.get(&format!("{REPO}/ref-updates")).await;
            let mut updates = updates.expect(200)["items"].as_array().unwrap().clone();
            updates.reverse();
            (updates.len() >= count).then_some(updates)
        })
        .await
    }

    /// Returns the metrics of the node.
    pub async fn metrics(&self) -> String {
        let node = self.app.database.rows("SELECT url FROM git.nodes").await.remove(0);
        let url = format!("{}/metrics", node["url"].as_str().unwrap());
        client().get(url).send().await.unwrap().text().await.unwrap()
    }

    /// Returns the number of these decisions about pushes in progress.
    pub async fn push_decisions(&self, decision: &str) -> u64 {
        let prefix = format!("svc_git_push_decisions_total{{decision=\"{decision}\"}} ");
        let metrics = self.metrics().await;
        metrics.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    }

    /// Returns the directory of `app` on the node.
    pub async fn bare(&self) -> PathBuf {
        let repo = self.ada.get(REPO).await;
        self.node.repository(repo.expect(200)["id"].as_str().unwrap())
    }
}

impl GitNode {
    /// Registers a git node in this database, and starts it for the server with this internal address.
    pub async fn start(database: &str, internal: &str) -> Self {
        Self::at(database, internal, reserved_port(), reserved_port(), &[]).await
    }

    /// Like [`Self::start`], with reserved ports and further settings.
    pub async fn at(database: &str, internal: &str, http: u16, ssh: u16, more: &[(&'static str, String)]) -> Self {
        let store = store::Config::new(Secret::new(database.to_owned()), "test");
        let nodes = Nodes::new(Store::new(&store, ClockRng::system()).unwrap());
        let added = nodes.add(&Actor::operator("test"), "git".parse().unwrap(), NodeKind::Git).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut settings = vec![
            ("SVC_GIT_LISTEN", format!("127.0.0.1:{http}")),
            ("SVC_GIT_SSH_LISTEN", format!("127.0.0.1:{ssh}")),
            ("SVC_GIT_INTERNAL_LISTEN", "127.0.0.1:0".to_owned()),
            ("SVC_GIT_CORE_URL", internal.to_owned()),
            ("SVC_GIT_TOKEN", added.token.reveal().to_owned()),
            ("SVC_GIT_DIR", folder.path().display().to_string()),
            ("PATH", std::env::var_os("PATH").unwrap().into_string().unwrap()),
        ];
        settings.extend_from_slice(more);
        let node = Self { http, ssh, child: spawn("svc-git", &settings), settings, folder };
        let mut connection = store::Connection::establish(database).await.unwrap();
        eventually("the git node announces itself", async || {
            let announced: i64 = git_nodes::table.count().get_result(&mut connection).await.unwrap();
            (announced > 0).then_some(())
        })
        .await;
        node
    }

    /// Returns the directory of the node.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the directory of the repository with this id.
    pub fn repository(&self, id: &str) -> PathBuf {
        self.folder().join("repos").join(&id[id.len() - 2..]).join(id)
    }

    /// Replaces the node's copy of the hook program. The script can run the program as `$hook`.
    pub fn replace_hook(&self, script: &str) {
        let (program, moved) = (self.folder().join("svc-git-hook"), self.folder().join("reference-transaction"));
        if !moved.exists() {
            std::fs::rename(&program, &moved).unwrap();
        }
        let new = program.with_extension("new");
        write_program(&new, &format!("#!/bin/sh\nhook='{}'\n{script}\n", moved.display()));
        std::fs::rename(&new, &program).unwrap();
    }

    /// Holds pushes after git has locked the refs of a transaction, and before the hook runs, until `release_pushes`. Lets
    /// this number of transactions pass first.
    pub fn hold_pushes(&self, after: usize) {
        let [hold, held, passed] = ["hold", "held", "passed"].map(|name| self.folder().join(name));
        for file in [&hold, &passed] {
            std::fs::write(file, "").unwrap();
        }
        let (hold, held, passed) = (hold.display(), held.display(), passed.display());
        let wait = format!(": > '{held}'; while [ -e '{hold}' ]; do sleep 0.05; done");
        let count = format!("if [ $(wc -l < '{passed}') -ge {after} ]; then {wait}; else echo >> '{passed}'; fi");
        let script = format!("if [ \"$1\" = prepared ] && [ -e '{hold}' ]; then {count}; fi\nexec \"$hook\" \"$@\"");
        self.replace_hook(&script);
    }

    /// Waits until a push is held.
    pub async fn wait_for_held_push(&self) {
        let held = self.folder().join("held");
        eventually("a push is held", async || held.exists().then_some(())).await;
    }

    pub fn release_pushes(&self) {
        for file in ["held", "hold"] {
            std::fs::remove_file(self.folder().join(file)).unwrap();
        }
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the status with which the process exited.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Kills the node with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub async fn restart(&mut self) {
        self.restart_with(&[]).await;
    }

    /// Restarts a killed node. Returns the file of its log.
    pub fn restart_with_log(&mut self) -> PathBuf {
        let log = self.folder().join("log");
        self.child = command("svc-git", &self.settings).stdout(File::create(&log).unwrap()).spawn().unwrap();
        log
    }

    /// Restarts a killed node with further settings.
    pub async fn restart_with(&mut self, more: &[(&'static str, String)]) {
        self.child = spawn("svc-git", &[&self.settings[..], more].concat());
        let http = self.http;
        eventually("the git node listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", http)).await.ok().map(drop)
        })
        .await;
    }
}

impl Drop for GitNode {
    fn drop(&mut self) {
        self.kill();
    }
}

diesel::table! {
    #[sql_name = "nodes"]
    git.git_nodes (node_id) {
        node_id -> Uuid,
    }
}

impl Clone {
    /// Returns a repository of a client in this folder.
    pub fn at(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        let key = folder.join("key");
        let ssh = format!(
            "ssh -i {} -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile={} \
             -o BatchMode=yes -o LogLevel=ERROR",
            key.display(),
            folder.join("known_hosts").display()
        );
        let environment = [
            ("HOME", folder.display().to_string()),
            ("PATH", std::env::var_os("PATH").unwrap().into_string().unwrap()),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            ("GIT_AUTHOR_NAME", "Ada".to_owned()),
            ("GIT_AUTHOR_EMAIL", "ada@example.org".to_owned()),
            ("GIT_COMMITTER_NAME", "Ada".to_owned()),
            ("GIT_COMMITTER_EMAIL", "ada@example.org".to_owned()),
            ("GIT_SSH_COMMAND", ssh),
        ];
        Self { path, environment: environment.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    /// Runs git, which must succeed. Returns its output.
    pub fn git(&self, arguments: &[&str]) -> String {
        let output = self.try_git(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {}: {stderr}", arguments.join(" "));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs git with this standard input. It must succeed.
    pub fn feed(&self, arguments: &[&str], input: &str) {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Pushes `main`. Returns the output for the user.
    pub fn push(&self) -> String {
        let output = self.try_git(&["push", "origin", "main"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        stderr
    }

    /// Runs git, which must fail. Returns the output for the user.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let output = self.try_git(arguments);
        assert!(!output.status.success(), "git {} succeeded", arguments.join(" "));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn try_git(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.path).args(arguments).stdin(Stdio::null());
        command
    }

    /// Writes a file, and commits it. Returns the commit.
    pub fn commit(&self, file: &str, contents: &[u8]) -> String {
        let path = self.path.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", &format!("Change {file}")]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a token with these scopes.
pub async fn token(user: &Caller, scopes: &[&str]) -> String {
    let created = user.post("/v1/me/tokens", json!({ "name": "git", "scopes": scopes })).await;
    created.expect(201)["token"].as_str().unwrap().to_owned()
}

/// A program `git` that waits at some commands while it is held.
pub struct HeldGit {
    folder: TempDir,
    hold: PathBuf,
    waiting: PathBuf,
}

impl HeldGit {
    /// Creates the program, which waits at commands with this pattern of `case`.
    pub fn new(pattern: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [hold, waiting] = ["hold", "waiting"].map(|name| folder.path().join(name));
        let wait = format!("while [ -e '{}' ]; do : > '{}'; /bin/sleep 0.05; done", hold.display(), waiting.display());
        wrapped_git(folder.path(), &format!("case \"$*\" in\n{pattern}) {wait} ;;\nesac"));
        Self { folder, hold, waiting }
    }

    /// Returns the `PATH` of a node that uses the program.
    pub fn path(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Lets the following commands wait.
    pub fn hold(&self) {
        std::fs::write(&self.hold, "").unwrap();
    }

    /// Waits until a command waits.
    pub async fn wait_until_held(&self) {
        eventually("a command of git waits", async || self.waiting.exists().then_some(())).await;
    }

    pub fn release(&self) {
        std::fs::remove_file(&self.hold).unwrap();
    }
}

/// Creates a program `git` in this folder, which runs a script before the real git. Returns the `PATH` of a node that
/// uses it.
pub fn wrapped_git(folder: &Path, script: &str) -> String {
    let path = std::env::var_os("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|program| program.is_file()).unwrap();
    let program = folder.join("git");
    write_program(&program, &format!("#!/bin/sh\n{script}\nexec '{}' \"$@\"\n", git.display()));
    folder.display().to_string()
}
