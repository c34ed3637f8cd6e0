//! Test fixtures: a server for each test, and machines that run `svc`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::Client;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{TestDatabase, WITHOUT_SYSTEM_CERTIFICATES, reserved_port, write_program};

/// A running control plane.
pub struct Platform {
    pub api: String,
    pub internal: String,
    pub database: TestDatabase,
    /// The folder with the bundles and the log.
    pub folder: TempDir,
    server: Child,
}

impl Platform {
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts the control plane with these settings in addition to the defaults.
    pub async fn with(settings: &[(&str, String)]) -> Self {
        Self::at(reserved_port(), settings).await
    }

    /// Starts the control plane at a port that other systems know.
    pub async fn at(port: u16, settings: &[(&str, String)]) -> Self {
        let (database, folder) = (TestDatabase::create().await, TempDir::new().unwrap());
        let (listen, internal) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", reserved_port()));
        let api = format!("http://{listen}");
        let mut command = Command::new(program("svc-server"));
        command.env_clear().stdout(File::create(folder.path().join("server.log")).unwrap()).envs([
            ("SVC_DATABASE_URL", database.url()),
            ("SVC_LISTEN", listen),
            ("SVC_INTERNAL_LISTEN", internal.clone()),
            ("SVC_PUBLIC_URL", api.clone()),
            ("SVC_DASHBOARD_URL", "http://localhost:3000".into()),
            ("SVC_ENABLE_DEV_AUTH", "on".into()),
            ("SVC_SEALING_KEYS", "test:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into()),
            ("SVC_PLATFORM_DOMAIN", "localhost".into()),
            ("SVC_SITE_URL", "http://{hostname}:8088".into()),
            ("SVC_FALLBACK_ORIGIN", "fallback.localhost".into()),
            ("SVC_DNS_RESOLVER", "127.0.0.1:9".into()),
            ("SVC_BUNDLE_STORE", format!("file://{}", folder.path().display())),
            // The server ignores settings of the command line, whose names begin with `SVC_CLI_`.
            ("SVC_CLI_API", api.clone()),
        ]);
        let server = command
            .envs([WITHOUT_SYSTEM_CERTIFICATES])
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .spawn()
            .unwrap();
        let mut platform = Self { api, internal, database, folder, server };
        let client = Client::new(&platform.api, "test").unwrap();
        for _ in 0..2400 {
            let ready = client.service_readyz().send().await.is_ok();
            let status = platform.server.try_wait().unwrap();
            assert!(status.is_none(), "the server exited: {status:?}");
            if ready {
                return platform;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the server did not become ready");
    }

    /// Returns a machine where Ada is signed in.
    pub fn ada(&self) -> Machine {
        let machine = Machine::new(&self.api);
        machine.svc(&["login", "--dev", "ada"]).succeeds();
        machine
    }

    /// Returns Ada's machine, with the project `ada/site` and a linked folder that contains a page.
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

/// Returns the path of another program of the workspace, which is in the same build directory as `svc`.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_svc")).with_file_name(name)
}

/// Writes the stdin of a program. The program may exit before it has read it.
fn write_stdin(program: &mut Child, input: &str) {
    match program.stdin.take().unwrap().write_all(input.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
}

/// A user's machine: a working folder, a home and environment variables.
pub struct Machine {
    pub folder: PathBuf,
    pub environment: BTreeMap<&'static str, String>,
    home: TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandResult {
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
        let (name, certificates) = WITHOUT_SYSTEM_CERTIFICATES;
        let environment = [
            (name, certificates.to_owned()),
            ("PATH", path),
            // The home directory ends the search for a link file above the working folder.
            ("HOME", at(home.path())),
            ("XDG_CONFIG_HOME", at(&home.path().join("config"))),
            ("SVC_CLI_API", api.to_owned()),
        ];
        let environment = environment.into();
        Self { folder, environment, home }
    }

    /// Returns a folder that is not linked to a project.
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

    pub fn svc(&self, arguments: &[&str]) -> CommandResult {
        self.svc_with_stdin("", arguments)
    }

    /// Runs `svc` with this stdin.
    pub fn svc_with_stdin(&self, input: &str, arguments: &[&str]) -> CommandResult {
        let mut child = self.command(arguments).spawn().unwrap();
        write_stdin(&mut child, input);
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        CommandResult { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs git, which must succeed. Returns its output.
    pub fn git(&self, arguments: &[&str]) -> String {
        self.git_with_stdin("", arguments).unwrap_or_else(|| panic!("git {} failed", arguments.join(" ")))
    }

    /// Runs git with this stdin. Returns its output, or `None` if it failed.
    pub fn git_with_stdin(&self, input: &str, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("git");
        command.env_clear().envs(&self.environment).env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", &self.folder).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
        command.current_dir(&self.folder).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        write_stdin(&mut child, input);
        let output = child.wait_with_output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Runs `svc --json` and returns the document.
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.svc(&[arguments, &["--json"]].concat()).succeeds().json()
    }

    /// Writes a file in the working folder.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Installs a fake browser. Returns the file to which it writes the URL.
    pub fn browser(&mut self) -> PathBuf {
        let (program, opened) = (self.home.path().join("browser"), self.home.path().join("opened"));
        let script = format!("#!/bin/sh\necho \"$1\" > {0}.new; mv {0}.new {0}\n", opened.display());
        write_program(&program, &script);
        self.environment.insert("BROWSER", program.display().to_string());
        opened
    }

    /// Waits until the fake browser has opened a URL, and returns it.
    pub async fn opened(&self) -> String {
        let opened = self.home.path().join("opened");
        for _ in 0..3000 {
            if opened.exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let url = fs::read_to_string(&opened).unwrap();
        fs::remove_file(opened).unwrap();
        url.trim_end().to_owned()
    }

    pub fn credentials(&self) -> PathBuf {
        self.home.path().join("config/svc/credentials.json")
    }
}

impl CommandResult {
    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.fails(0)
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn fails(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self
    }

    /// Returns the JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// Asserts that stderr contains this text.
    #[track_caller]
    pub fn stderr_contains(&self, text: &str) -> &Self {
        assert!(self.err.contains(text), "{text:?} is not in: {}", self.err);
        self
    }
}
