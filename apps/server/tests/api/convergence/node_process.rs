//! The node as the process that operators run: `svc-node` with its settings.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use convergence::Nodes;
use kernel::audit::Actor;
use kernel::{Secret, World};
use store::Store;

use crate::kit::client;
use crate::process::{Process, port};

/// `svc-node` as a process of its own.
pub struct Node {
    child: Child,
    /// Where its front listens.
    pub edge: String,
    given: Vec<(&'static str, String)>,
    folder: PathBuf,
}

impl Node {
    /// Adds a node to what the server knows, and starts it with these settings beside the usual ones.
    pub async fn start(server: &Process, more: &[(&'static str, String)]) -> Self {
        let config = store::Config::new(Secret::new(server.database.url()), "test");
        let nodes = Nodes::new(Store::new(&config, World::system()).unwrap());
        let token = nodes.add(&Actor::operator("test"), "edge".parse().unwrap()).await.unwrap().token;
        let edge = format!("127.0.0.1:{}", port());
        let folder = std::env::temp_dir().join(format!("svc-node-{}", edge.replace(':', "-")));
        let mut given = vec![
            ("SVC_EDGE_LISTEN", edge.clone()),
            ("SVC_NODE_CORE_URL", server.internal.clone()),
            ("SVC_NODE_TOKEN", token.reveal().to_owned()),
            ("SVC_NODE_DIR", folder.display().to_string()),
        ];
        given.extend_from_slice(more);
        Self { child: spawn(&given), edge, given, folder }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        self.child = spawn(&self.given);
    }

    /// What a host shows at a path, if it shows anything.
    pub async fn page(&self, host: &str, path: &str) -> Option<String> {
        let answer = client().get(format!("http://{}{path}", self.edge)).header("host", host).send().await.ok()?;
        if answer.status() == 200 { answer.text().await.ok() } else { None }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The program that runs worker code; none, with a loud line, where it is not to be had.
pub fn workerd() -> Option<String> {
    let workerd = std::env::var_os("SVC_TEST_WORKERD").map(|it| it.into_string().unwrap());
    if workerd.is_none() {
        eprintln!("SKIPPED: there is no workerd; cargo xtask test obtains it by npm, or set SVC_TEST_WORKERD");
    }
    workerd
}

/// One of the programs that are built beside the server.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_svc-server")).with_file_name(name)
}

fn spawn(given: &[(&str, String)]) -> Child {
    let program = program("svc-node");
    let mut command = Command::new(&program);
    command.env_clear().envs(given.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdout(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}
