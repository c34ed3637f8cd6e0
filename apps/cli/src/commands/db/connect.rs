//! `svc db connect`: runs `psql`. The password is in the environment of the child, which other users cannot read, and
//! never in its arguments.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use client::types::DatabaseConnect;

use crate::error::CliError;

/// How long the node may take to create a database that was just enabled.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The exit code of psql for a failed connection.
const NOT_CONNECTED: i32 = 2;
/// The files with the root certificates of the system.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Replaces this process by `psql`, whose exit code becomes that of `svc`.
pub async fn run((client, org, project): (&Client, &str, &str), arguments: &[OsString]) -> Result<(), CliError> {
    let connection = client.database_connect(org, project).send().await?;
    let start = Instant::now();
    while start.elapsed() < READY_TIMEOUT && !accepts_connections(&connection)? {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    // If psql cannot connect either, it prints the reason itself.
    Err(not_started(psql(&connection).args(arguments).exec()))
}

fn accepts_connections(connection: &DatabaseConnect) -> Result<bool, CliError> {
    let mut probe = psql(connection);
    probe.args(["--no-psqlrc", "--command=SELECT 1"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(probe.status().map_err(not_started)?.code() != Some(NOT_CONNECTED))
}

fn psql(connection: &DatabaseConnect) -> Command {
    let mut command = Command::new("psql");
    command.arg("--no-password");
    // These variables would redirect psql to another server.
    for name in ["PGSERVICE", "PGHOSTADDR"] {
        command.env_remove(name);
    }
    command.envs([
        ("PGHOST", connection.host.as_str()),
        ("PGPORT", &connection.port.to_string()),
        ("PGDATABASE", &connection.database),
        ("PGUSER", &connection.user),
        ("PGPASSWORD", connection.password.reveal()),
        ("PGSSLMODE", &connection.sslmode),
    ]);
    if connection.sslmode == "verify-full" && !has_own_roots() {
        command.env("PGSSLROOTCERT", system_roots());
    }
    command
}

/// Returns whether the user has chosen the root certificates of libpq.
fn has_own_roots() -> bool {
    let own = env::var_os("HOME").map(|home| PathBuf::from(home).join(".postgresql/root.crt"));
    env::var_os("PGSSLROOTCERT").is_some() || own.is_some_and(|file| file.exists())
}

/// Returns the root certificates of the system. libpq does not use them by default.
fn system_roots() -> PathBuf {
    let chosen = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let found = chosen.into_iter().chain(SYSTEM_ROOTS.map(PathBuf::from)).find(|file| file.is_file());
    // libpq 16 and later accept this keyword. Earlier versions report that the file does not exist.
    found.unwrap_or_else(|| PathBuf::from("system"))
}

fn not_started(error: io::Error) -> CliError {
    if error.kind() == io::ErrorKind::NotFound {
        return CliError::Other(
            "psql is not in PATH: install the client programs of Postgres, or pass the URL of `svc db url` to another \
             client"
                .to_owned(),
        );
    }
    CliError::Other(format!("failed to start psql: {error}"))
}
