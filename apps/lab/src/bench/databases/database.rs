//! A database of a project, as a client of Postgres sees it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::{Client, Config, NoTls};

use crate::bench::platform::Platform;
use crate::bench::server::string_at;

/// The longest wait until a database can be used.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The connection info of a database.
#[derive(Clone)]
pub struct Database {
    config: Config,
    /// The URL for programs of Postgres. It contains the password.
    pub url: String,
}

impl Database {
    /// Enables the database of a project, and returns as soon as the API responds. Waits for its turn while the
    /// organization has too many concurrent writes.
    pub async fn enable(platform: &Platform, project: &str) -> Result<Self> {
        let start = Instant::now();
        loop {
            match platform.call(Method::POST, &format!("{project}/database"), &json!(null)).await {
                Ok(connect) => return Self::new(&connect),
                Err(error) if start.elapsed() > TIMEOUT || !error.to_string().contains("503") => return Err(error),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn new(connect: &Value) -> Result<Self> {
        let port = connect.get("port").and_then(Value::as_u64).context("no port")?;
        let mut config = Config::new();
        config.host(string_at(connect, "/host")?).port(u16::try_from(port)?).dbname(string_at(connect, "/database")?);
        config.user(string_at(connect, "/user")?).password(string_at(connect, "/password")?);
        config.connect_timeout(Duration::from_secs(10));
        Ok(Self { config, url: string_at(connect, "/url")? })
    }

    /// Returns the same database with the user and password of a token.
    pub fn with_token(&self, token: &Value) -> Result<Self> {
        let mut config = self.config.clone();
        config.user(string_at(token, "/user")?).password(string_at(token, "/password")?);
        Ok(Self { config, url: String::new() })
    }

    /// Opens a session.
    ///
    /// # Errors
    /// Returns an error if Postgres refuses the login or does not respond.
    pub async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        // The task ends with the client. The next query returns the task's error.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Waits until a session can be opened.
    pub async fn wait_until_usable(&self) -> Result<Client> {
        self.wait_with(Duration::from_millis(5)).await
    }

    /// Waits until a session can be opened, with attempts at this interval.
    pub async fn wait_with(&self, interval: Duration) -> Result<Client> {
        let start = Instant::now();
        loop {
            match self.connect().await {
                Ok(client) => return Ok(client),
                Err(error) => ensure!(start.elapsed() < TIMEOUT, "the database cannot be used: {error}"),
            }
            sleep(interval).await;
        }
    }
}
