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
use xtask::credential;
use xtask::postgres::Cluster;
use xtask::services::Services;

use crate::bench::server::{Server, string_at, success_json};
use crate::program::RunningProgram;

/// The path of the project's repositories in the API.
const REPOS: &str = "/v1/orgs/ada/projects/site/repos";

/// A running git node.
pub struct GitNode {
    pub program: RunningProgram,
    http: SocketAddr,
    ssh: SocketAddr,
    folder: PathBuf,
}

/// A user of a git node: Ada, who has the project `site`, a token for pushes, and an SSH key.
#[derive(Clone)]
pub struct GitClient {
    http: SocketAddr,
    ssh: SocketAddr,
    token: String,
    folder: PathBuf,
}

/// A running server and git node, and their user.
pub struct GitHost {
    pub server: Server,
    pub node: GitNode,
    pub client: GitClient,
    folder: PathBuf,
}

impl GitNode {
    /// Starts a node with a credential of the control plane at this internal address.
    pub async fn start(services: &mut Services, folder: &Path, core: SocketAddr, database_url: Secret) -> Result<Self> {
        let credential = folder.join("git.token");
        credential::ensure_node(database_url, &credential, NodeKind::Git).await?;
        let path = std::env::var_os("PATH").and_then(|path| path.into_string().ok()).context("PATH is not UTF-8")?;
        let [http, ssh, internal] = std::array::from_fn(|_| reserved_address());
        let settings = vec![
            ("SVC_GIT_LISTEN", http.to_string()),
            ("SVC_GIT_SSH_LISTEN", ssh.to_string()),
            ("SVC_GIT_INTERNAL_LISTEN", internal.to_string()),
            ("SVC_GIT_CORE_URL", format!("http://{core}")),
            ("SVC_GIT_TOKEN_FILE", credential.display().to_string()),
            ("SVC_GIT_DIR", folder.join("git").display().to_string()),
            ("SVC_GIT_MAX_REQUESTS_PER_MINUTE_PER_ADDRESS", "1000000".to_owned()),
            ("SVC_GIT_LOG", "warn".to_owned()),
            ("PATH", path),
        ];
        let program = RunningProgram::start(services, "git", folder, settings, (internal, "/metrics")).await?;
        Ok(Self { program, http, ssh, folder: folder.to_owned() })
    }
}

impl GitClient {
    /// Creates the project, the token and the SSH key.
    pub async fn register(server: &Server, node: &GitNode) -> Result<Self> {
        call(server, Method::POST, "/v1/orgs/ada/projects", &json!({ "name": "site" })).await?;
        let token = json!({ "name": "lab", "scopes": ["git:write"] });
        let token = string_at(&call(server, Method::POST, "/v1/me/tokens", &token).await?, "/token")?;
        let client = Self { http: node.http, ssh: node.ssh, token, folder: node.folder.clone() };
        let mut generate = Command::new("ssh-keygen");
        generate.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(client.key());
        ensure!(generate.status().await.context("ssh-keygen")?.success(), "ssh-keygen failed");
        let public = std::fs::read_to_string(client.key().with_extension("pub"))?;
        let key = json!({ "title": "lab", "key": public.trim() });
        call(server, Method::POST, "/v1/me/ssh-keys", &key).await?;
        Ok(client)
    }

    /// Returns the URL over HTTP.
    pub fn url(&self, name: &str) -> String {
        format!("http://git:{}@{}/ada/site/{name}.git", self.token, self.http)
    }

    /// Returns the URL over SSH.
    pub fn ssh_url(&self, name: &str) -> String {
        format!("ssh://git@{}/ada/site/{name}.git", self.ssh)
    }

    /// Returns the path of the private SSH key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("client_key")
    }

    /// Returns a git command in a folder.
    pub fn git(&self, folder: &Path) -> Command {
        git(folder, &self.key())
    }
}

impl GitHost {
    /// Starts both on an empty database.
    pub async fn start(services: &mut Services, folder: &Path, cluster: Cluster) -> Result<Self> {
        let url = cluster.url("postgres");
        services.postgres = Some(cluster);
        Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
        let server = Server::start(services, folder, url.clone(), &[]).await?;
        let node = GitNode::start(services, folder, server.internal, Secret::new(url)).await?;
        let client = GitClient::register(&server, &node).await?;
        Ok(Self { server, node, client, folder: folder.to_owned() })
    }

    /// Creates an empty repository.
    pub async fn create(&self, name: &str) -> Result<()> {
        create_repository(&self.server, name).await
    }

    /// Returns the response to a GET request below the path of a repository.
    pub async fn read(&self, name: &str, path: &str) -> Result<Value> {
        read(&self.server, &format!("{name}{path}")).await
    }

    /// Returns the directory of a repository at the node.
    pub async fn directory(&self, name: &str) -> Result<PathBuf> {
        repository_directory(&self.server, &self.folder, name).await
    }
}

/// Creates an empty repository of Ada's project.
pub async fn create_repository(server: &Server, name: &str) -> Result<()> {
    call(server, Method::POST, REPOS, &json!({ "name": name })).await.map(drop)
}

/// Returns the directory of a repository at a git node with this folder.
pub async fn repository_directory(server: &Server, folder: &Path, name: &str) -> Result<PathBuf> {
    let id = string_at(&read(server, name).await?, "/id")?;
    let shard = id.get(id.len().saturating_sub(2)..).context("a short id")?;
    Ok(folder.join("git/repos").join(shard).join(&id))
}

async fn read(server: &Server, path: &str) -> Result<Value> {
    success_json(server.request(Method::GET, &format!("{REPOS}/{path}")).send().await?).await
}

async fn call(server: &Server, method: Method, path: &str, body: &Value) -> Result<Value> {
    success_json(server.request(method, path).json(body).send().await?).await
}

/// Returns a git command of a client with this SSH key, in a folder.
fn git(folder: &Path, key: &Path) -> Command {
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
