//! A server of its own for each test, and people at their machines.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::Client;
use serde_json::Value;
use tempfile::TempDir;
use testkit::TestDatabase;

/// The control plane, as operators run it. It is built beside `svc`.
pub struct Platform {
    pub api: String,
    server: Child,
    _database: TestDatabase,
    _folder: TempDir,
}

impl Platform {
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With these settings beside the usual ones.
    pub async fn with(more: &[(&str, String)]) -> Self {
        let (database, folder) = (TestDatabase::create().await, TempDir::new().unwrap());
        let (listen, internal) = (format!("127.0.0.1:{}", port()), format!("127.0.0.1:{}", port()));
        let api = format!("http://{listen}");
        let program = Path::new(env!("CARGO_BIN_EXE_svc")).with_file_name("svc-server");
        let mut command = Command::new(program);
        command.env_clear().stdout(Stdio::null()).envs([
            ("SVC_DATABASE_URL", database.url()),
            ("SVC_LISTEN", listen),
            ("SVC_INTERNAL_LISTEN", internal),
            ("SVC_PUBLIC_URL", api.clone()),
            ("SVC_DASHBOARD_URL", "http://localhost:3000".into()),
            ("SVC_ENABLE_DEV_AUTH", "on".into()),
            ("SVC_SEALING_KEYS", "test:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into()),
            ("SVC_PLATFORM_DOMAIN", "localhost".into()),
            ("SVC_SITE_URL", "http://{hostname}:8088".into()),
            ("SVC_FALLBACK_ORIGIN", "fallback.localhost".into()),
            ("SVC_DNS_RESOLVER", "127.0.0.1:9".into()),
            ("SVC_BUNDLE_STORE", format!("file://{}", folder.path().display())),
            // Those of the command line are in nobody's way.
            ("SVC_CLI_API", api.clone()),
        ]);
        let server = command.envs(more.iter().map(|(name, value)| (name, value))).spawn().unwrap();
        let mut platform = Self { api, server, _database: database, _folder: folder };
        let client = Client::new(&platform.api, "test").unwrap();
        for _ in 0..600 {
            let ready = client.service_readyz().send().await.is_ok();
            // Then whoever answers is somebody else, who has the port.
            let ended = platform.server.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended at once: {ended:?}");
            if ready {
                return platform;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the server does not become ready");
    }

    /// Somebody who has signed in.
    pub fn ada(&self) -> Machine {
        let machine = Machine::new(&self.api);
        machine.svc(&["login", "--dev", "ada"]).succeeds();
        machine
    }

    /// The same with the project `ada/site`, in a folder that is linked to it and holds a page.
    pub fn ada_with_site(&self) -> Machine {
        let machine = self.ada();
        machine.svc(&["init", "--org", "ada", "--project", "site"]).succeeds();
        machine.svc(&["projects", "create", "site"]).succeeds();
        machine.write("assets/index.html", "<h1>Hello</h1>");
        machine
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Somebody's machine: a working folder and a home.
pub struct Machine {
    pub folder: PathBuf,
    pub environment: BTreeMap<&'static str, String>,
    home: TempDir,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Machine {
    pub fn new(api: &str) -> Self {
        let home = TempDir::new().unwrap();
        let folder = home.path().join("work");
        fs::create_dir(&folder).unwrap();
        let at = |path: &Path| path.display().to_string();
        let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
        let environment = [
            ("PATH", path),
            // What lies above a home is in no test's way.
            ("HOME", at(home.path())),
            ("XDG_CONFIG_HOME", at(&home.path().join("config"))),
            ("SVC_CLI_API", api.to_owned()),
        ];
        let environment = environment.into();
        Self { folder, environment, home }
    }

    /// A folder that nothing links to a project.
    pub fn unlinked(&self) -> PathBuf {
        let folder = self.home.path().join("unlinked");
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.env_clear().envs(&self.environment).current_dir(&self.folder).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn svc(&self, arguments: &[&str]) -> Ran {
        self.svc_given("", arguments)
    }

    /// With this on stdin.
    pub fn svc_given(&self, input: &str, arguments: &[&str]) -> Ran {
        let mut child = self.command(arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What `--json` prints.
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.svc(&[arguments, &["--json"]].concat()).succeeds().json()
    }

    /// Writes a file of the working folder.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A browser that notes what it is to open; where.
    pub fn browser(&mut self) -> PathBuf {
        let (program, seen) = (self.home.path().join("browser"), self.home.path().join("opened"));
        fs::write(&program, format!("#!/bin/sh\necho \"$1\" > {0}.new; mv {0}.new {0}\n", seen.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        self.environment.insert("BROWSER", program.display().to_string());
        seen
    }

    pub fn credentials(&self) -> PathBuf {
        self.home.path().join("config/svc/credentials.json")
    }
}

impl Ran {
    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.fails(0)
    }

    /// Ended with this exit code.
    #[track_caller]
    pub fn fails(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self
    }

    /// The one document on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// Says this to people.
    #[track_caller]
    pub fn says(&self, words: &str) -> &Self {
        assert!(self.err.contains(words), "{words:?} is not in: {}", self.err);
        self
    }
}
