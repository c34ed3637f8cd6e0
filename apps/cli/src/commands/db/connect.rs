//! `svc db connect`: runs `psql`. The password is in the environment of the child, which other users cannot read, and
//! never in its arguments.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
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
    command
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
