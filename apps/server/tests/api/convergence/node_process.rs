//! The node as a process: `svc-node` with its settings.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use convergence::Nodes;
use kernel::audit::Actor;
use kernel::{ClockRng, Secret};
use store::Store;

use crate::process::Process;
use crate::support::client;
use testkit::{WITHOUT_SYSTEM_CERTIFICATES, reserved_port};

/// A running `svc-node` process.
pub struct Node {
    child: Child,
    /// The address of the front.
    pub edge: String,
    settings: Vec<(&'static str, String)>,
    folder: PathBuf,
}

impl Node {
    /// Registers a node at the server and starts it with these settings in addition to the defaults.
    pub async fn start(server: &Process, extra: &[(&'static str, String)]) -> Self {
        Self::at(server, reserved_port(), extra).await
    }

    /// Like [`Self::start`], with a reserved port for its front.
    pub async fn at(server: &Process, port: u16, extra: &[(&'static str, String)]) -> Self {
        let config = store::Config::new(Secret::new(server.database.url()), "test");
        let nodes = Nodes::new(Store::new(&config, ClockRng::system()).unwrap());
        let token = nodes
            .add(&Actor::operator("test"), "edge".parse().unwrap(), convergence::NodeKind::App)
            .await
            .unwrap()
            .token;
        let edge = format!("127.0.0.1:{port}");
        let folder = std::env::temp_dir().join(format!("svc-node-{}", edge.replace(':', "-")));
        let mut settings = vec![
            ("SVC_EDGE_LISTEN", edge.clone()),
            ("SVC_NODE_CORE_URL", server.internal.clone()),
            ("SVC_NODE_TOKEN", token.reveal().to_owned()),
            ("SVC_NODE_DIR", folder.display().to_string()),
        ];
        settings.extend_from_slice(extra);
        Self { child: spawn("svc-node", &settings), edge, settings, folder }
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn restart(&mut self) {
        self.child = spawn("svc-node", &self.settings);
    }

    /// Returns the page of a host at a path, or `None` if the status is not 200.
    pub async fn page(&self, host: &str, path: &str) -> Option<String> {
        let response = client().get(format!("http://{}{path}", self.edge)).header("host", host).send().await.ok()?;
        if response.status() == 200 { response.text().await.ok() } else { None }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the path of `workerd`. Returns `None` and prints a notice if `SVC_TEST_WORKERD` is not set.
pub fn workerd() -> Option<String> {
    let workerd = std::env::var_os("SVC_TEST_WORKERD").map(|it| it.into_string().unwrap());
    if workerd.is_none() {
        eprintln!("SKIPPED: SVC_TEST_WORKERD is not set; cargo xtask test installs workerd with npm and sets it");
    }
    workerd
}

/// Returns the path of a program in the build directory of the server.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_svc-server")).with_file_name(name)
}

/// Returns the command of such a program, with only these settings.
pub fn command(name: &str, settings: &[(&str, String)]) -> Command {
    let mut command = Command::new(program(name));
    command.env_clear().envs([WITHOUT_SYSTEM_CERTIFICATES]);
    command.envs(settings.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdout(Stdio::null());
    command
}

/// Starts such a program with only these settings.
pub fn spawn(name: &str, settings: &[(&str, String)]) -> Child {
    command(name, settings).spawn().unwrap_or_else(|error| panic!("{name}: {error}"))
}
