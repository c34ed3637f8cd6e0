//! A server and a git node, and git as their client.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use convergence::NodeKind;
use kernel::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use store::migrations::{self, Migrator};
use testkit::reserved_address;
use tokio::process::Command;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::{credential, probe, workspace};

use crate::bench::machine::{IS_RELEASE, kill};
use crate::bench::server::{Server, string_at, success_json};

/// The name of the git node among the services.
const NAME: &str = "git";
/// The path of the project's repositories in the API.
const REPOS: &str = "/v1/orgs/ada/projects/site/repos";

/// A running server and git node. Ada has the project `site`, a token for pushes, and an SSH key.
pub struct GitHost {
    pub server: Server,
    pub http: SocketAddr,
    pub ssh: SocketAddr,
    pub pid: u32,
    internal: SocketAddr,
    token: String,
    folder: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl GitHost {
    /// Starts both on an empty database.
    pub async fn start(services: &mut Services, folder: &Path, cluster: Cluster) -> Result<Self> {
        let url = cluster.url("postgres");
        services.postgres = Some(cluster);
        Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
        let credential = folder.join("git.token");
        credential::ensure_node(Secret::new(url.clone()), &credential, NodeKind::Git).await?;
        let server = Server::start(services, folder, url, &[]).await?;
        let path = std::env::var_os("PATH").and_then(|path| path.into_string().ok()).context("PATH is not UTF-8")?;
        let [http, ssh, internal] = std::array::from_fn(|_| reserved_address());
        let settings = vec![
            ("SVC_GIT_LISTEN", http.to_string()),
            ("SVC_GIT_SSH_LISTEN", ssh.to_string()),
            ("SVC_GIT_INTERNAL_LISTEN", internal.to_string()),
            ("SVC_GIT_CORE_URL", format!("http://{}", server.internal)),
            ("SVC_GIT_TOKEN_FILE", credential.display().to_string()),
            ("SVC_GIT_DIR", folder.join("git").display().to_string()),
            ("SVC_GIT_LOG", "warn".to_owned()),
            ("PATH", path),
        ];
        let mut host =
            Self { server, http, ssh, pid: 0, internal, token: String::new(), folder: folder.to_owned(), settings };
        host.start_node(services).await?;
        host.prepare().await?;
        Ok(host)
    }

    async fn start_node(&mut self, services: &mut Services) -> Result<()> {
        let program = workspace::program_folder(IS_RELEASE)?.join("svc-git");
        self.pid = services.start(NAME, &program, &self.folder, |it| {
            it.env_clear().envs(self.settings.iter().map(|(name, value)| (name, value)));
        })?;
        services.supervise(probe::wait_until_ok(self.internal, "/metrics")).await
    }

    async fn prepare(&mut self) -> Result<()> {
        self.call(Method::POST, "/v1/orgs/ada/projects", &json!({ "name": "site" })).await?;
        let token = json!({ "name": "lab", "scopes": ["git:write"] });
        self.token = string_at(&self.call(Method::POST, "/v1/me/tokens", &token).await?, "/token")?;
        let mut generate = Command::new("ssh-keygen");
        generate.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(self.key());
        ensure!(generate.status().await.context("ssh-keygen")?.success(), "ssh-keygen failed");
        let public = std::fs::read_to_string(self.key().with_extension("pub"))?;
        let key = json!({ "title": "lab", "key": public.trim() });
        self.call(Method::POST, "/v1/me/ssh-keys", &key).await.map(drop)
    }

    /// Kills the git node with SIGKILL, and starts it again.
    pub async fn kill_node(&mut self, services: &mut Services) -> Result<()> {
        kill(self.pid)?;
        services.stop_program(NAME).await;
        self.start_node(services).await
    }

    /// Creates an empty repository.
    pub async fn create(&self, name: &str) -> Result<()> {
        self.call(Method::POST, REPOS, &json!({ "name": name })).await.map(drop)
    }

    /// Returns the JSON response of the API.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        success_json(self.server.request(method, path).json(body).send().await?).await
    }

    /// Returns the response to a GET request below the path of a repository.
    pub async fn read(&self, name: &str, path: &str) -> Result<Value> {
        success_json(self.server.request(Method::GET, &format!("{REPOS}/{name}{path}")).send().await?).await
    }

    /// Returns the URL over HTTP.
    pub fn url(&self, name: &str) -> String {
        format!("http://git:{}@{}/ada/site/{name}.git", self.token, self.http)
    }

    /// Returns the URL over SSH.
    pub fn ssh_url(&self, name: &str) -> String {
        format!("ssh://git@{}/ada/site/{name}.git", self.ssh)
    }

    /// Returns the path of the SSH client's private key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("client_key")
    }

    /// Returns the directory of a repository at the node.
    pub async fn directory(&self, name: &str) -> Result<PathBuf> {
        let id = string_at(&self.read(name, "").await?, "/id")?;
        let shard = id.get(id.len().saturating_sub(2)..).context("a short id")?;
        Ok(self.folder.join("git/repos").join(shard).join(&id))
    }

    /// Returns a git command of the client, in a folder.
    pub fn git(&self, folder: &Path) -> Command {
        git(folder, &self.key())
    }
}

/// Returns a git command of a client with this SSH key, in a folder.
pub fn git(folder: &Path, key: &Path) -> Command {
    let ssh = format!(
        "ssh -F /dev/null -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o BatchMode=yes -o LogLevel=ERROR",
        key.display()
    );
    let mut command = Command::new("git");
    command.env_clear().current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command.envs([
        ("PATH", std::env::var_os("PATH").unwrap_or_default().as_os_str()),
        ("HOME", folder.as_os_str()),
        ("GIT_CONFIG_NOSYSTEM", OsStr::new("1")),
        ("GIT_TERMINAL_PROMPT", OsStr::new("0")),
        ("GIT_AUTHOR_NAME", OsStr::new("Ada")),
        ("GIT_AUTHOR_EMAIL", OsStr::new("ada@example.org")),
        ("GIT_COMMITTER_NAME", OsStr::new("Ada")),
        ("GIT_COMMITTER_EMAIL", OsStr::new("ada@example.org")),
        ("GIT_SSH_COMMAND", OsStr::new(&ssh)),
    ]);
    command
}

/// Runs a command that must succeed. Returns its output.
pub async fn stdout(command: &mut Command) -> Result<String> {
    let output = command.output().await?;
    ensure!(output.status.success(), "{:?}: {}", command.as_std(), String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
