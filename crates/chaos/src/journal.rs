//! A writer that keeps a journal of its writes: every acknowledged write must be stored exactly once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::check::{Database, StoredWrite, stored_writes};
use crate::write::{Write, WriteKind};

/// Creates an HTTP client that uses no proxy and follows no redirects.
///
/// # Errors
/// Returns an error if TLS cannot be initialized.
pub fn client() -> Result<Client> {
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    Ok(client.timeout(Duration::from_secs(15)).build()?)
}

/// The responses that a writer received so far.
#[derive(Debug, Clone, Default)]
pub struct WriteStats {
    /// Writes that were acknowledged.
    pub acknowledged: usize,
    /// Responses by status.
    pub statuses: BTreeMap<u16, usize>,
    /// Requests without a response: the connection was refused or closed.
    pub unanswered: usize,
    /// The longest response time.
    pub longest: Duration,
    /// Unexpected responses.
    pub unexpected: Vec<String>,
}

impl WriteStats {
    /// Adds the figures of another writer.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        self.acknowledged += other.acknowledged;
        self.unanswered += other.unanswered;
        self.longest = self.longest.max(other.longest);
        self.unexpected.extend_from_slice(&other.unexpected);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self
    }
}

/// A client that writes to its own organization.
pub struct Writer {
    client: Client,
    base: String,
    token: String,
    org: String,
    /// The pause after each write.
    pause: Duration,
    entries: Vec<Entry>,
    stats: WriteStats,
}

/// A line of the journal.
struct Entry {
    write: Write,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Not acknowledged: it may or may not be committed.
    Pending,
    /// Acknowledged, with the id if the response contained one.
    Acknowledged(Option<String>),
    /// Rejected: it must not be stored.
    Rejected,
}

impl Writer {
    /// Signs in and creates the project and the zone to write to. The organization has the writer's name.
    ///
    /// # Errors
    /// Returns an error if the service rejects a request.
    pub async fn start(base: &str, name: &str) -> Result<Self> {
        let client = client()?;
        let login = client.post(format!("{base}/v1/auth/dev/login")).json(&json!({ "subject": name }));
        let session = response_json(login.send().await?).await?;
        let token = session.get("token").and_then(Value::as_str).context("no token")?.to_owned();
        for (path, body) in
            [("projects", json!({ "name": "site" })), ("dns/zones", json!({ "name": format!("{name}.example.org") }))]
        {
            let make = client.post(format!("{base}/v1/orgs/{name}/{path}")).bearer_auth(&token).json(&body);
            response_json(make.send().await?).await?;
        }
        let (base, org) = (base.to_owned(), name.to_owned());
        let (entries, stats) = (Vec::new(), WriteStats::default());
        Ok(Self { client, base, token, org, pause: Duration::ZERO, entries, stats })
    }

    /// Sets the pause after each write.
    pub(crate) const fn set_pause(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Returns the session token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the slug of the organization.
    #[must_use]
    pub fn org(&self) -> &str {
        &self.org
    }

    /// Returns the responses received so far.
    #[must_use]
    pub const fn stats(&self) -> &WriteStats {
        &self.stats
    }

    /// Returns the mail addresses of all acknowledged invites.
    #[must_use]
    pub fn invited(&self) -> Vec<String> {
        let done = self.entries.iter().filter(|entry| matches!(entry.state, State::Acknowledged(_)));
        let invites = done.filter(|entry| entry.write.kind == WriteKind::Invite);
        invites.map(|entry| format!("{}@{}.example.org", entry.write.name, self.org)).collect()
    }

    /// Writes until `stop` returns true, and retries each write until it is acknowledged. If an earlier attempt is
    /// still in progress, leaves the write to [`Writer::retry_unacknowledged`].
    ///
    /// # Errors
    /// Returns an error if a bundle cannot be built.
    pub async fn run(&mut self, stop: impl Fn() -> bool) -> Result<()> {
        while !stop() {
            let number = self.entries.len();
            let kind = WriteKind::ALL.get(number % WriteKind::ALL.len()).copied().unwrap_or(WriteKind::Project);
            self.entries.push(Entry { write: Write::new(kind, number), state: State::Pending });
            while !stop() && !self.attempt(number).await? {
                sleep(Duration::from_millis(50)).await;
            }
            if !self.pause.is_zero() {
                sleep(self.pause).await;
            }
        }
        Ok(())
    }

    /// Retries all unacknowledged writes. An attempt that was killed holds its idempotency key for 15 seconds.
    ///
    /// # Errors
    /// Returns an error if a write is not acknowledged within 30 seconds.
    pub async fn retry_unacknowledged(&mut self) -> Result<()> {
        let start = Instant::now();
        while let Some(at) = self.entries.iter().position(|entry| entry.state == State::Pending) {
            let late = start.elapsed() > Duration::from_secs(30);
            ensure!(
                !late,
                "{} writes were not acknowledged within 30 s",
                self.entries.iter().filter(|it| it.state == State::Pending).count()
            );
            self.attempt(at).await?;
            if self.entries.get(at).is_some_and(|entry| entry.state == State::Pending) {
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// Returns the differences between the journal and the database.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn differences(&self, database: &str) -> Result<Vec<String>> {
        let database = Database::connect(database).await?;
        let mut differences = self.stats.unexpected.clone();
        for kind in WriteKind::ALL {
            let mut stored = stored_writes(&database, kind, &self.org).await?;
            for entry in self.entries.iter().filter(|entry| entry.write.kind == kind) {
                let row = stored.remove(&entry.write.name).unwrap_or_default();
                differences.extend(
                    entry.difference(&row)?.map(|text| format!("{} of {}: {text}", entry.write.name, self.org)),
                );
            }
            // Clients other than writers may have written too, but under names of another form.
            let unknown = stored.keys().filter(|name| kind.is_name(name));
            differences.extend(unknown.map(|name| format!("{name} of {}: not in the journal", self.org)));
        }
        Ok(differences)
    }

    /// Sends a write once. Returns whether the writer can continue with the next write.
    async fn attempt(&mut self, at: usize) -> Result<bool> {
        let Some(entry) = self.entries.get_mut(at) else { return Ok(true) };
        let request = entry.write.request(&self.client, &self.base, &self.org)?.bearer_auth(&self.token);
        let start = Instant::now();
        let Ok(response) = request.send().await else {
            self.stats.unanswered += 1;
            return Ok(false);
        };
        let status = response.status();
        let Ok(text) = response.text().await else {
            self.stats.unanswered += 1;
            return Ok(false);
        };
        self.stats.longest = self.stats.longest.max(start.elapsed());
        *self.stats.statuses.entry(status.as_u16()).or_default() += 1;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let code = body.get("code").and_then(Value::as_str).unwrap_or_default();
        entry.state = match (status.as_u16(), code) {
            (200..=299, _) => State::Acknowledged(entry.write.response_id(&body)),
            (409, "idempotency_answer_lost") => State::Acknowledged(None),
            (409, "idempotency_in_progress") => return Ok(true),
            (503 | 429, _) => return Ok(false),
            _ => {
                self.stats
                    .unexpected
                    .push(format!("{} of {}: unexpected response {status}: {text}", entry.write.name, self.org));
                State::Rejected
            }
        };
        self.stats.acknowledged += usize::from(matches!(entry.state, State::Acknowledged(_)));
        Ok(true)
    }
}

impl Entry {
    fn difference(&self, stored: &StoredWrite) -> Result<Option<String>> {
        let StoredWrite { rows, audit_rows, id, content } = stored;
        let (min, max) = match &self.state {
            State::Pending => (0, 1),
            State::Acknowledged(_) => (1, 1),
            State::Rejected => (0, 0),
        };
        if !(min..=max).contains(rows) {
            return Ok(Some(format!("stored {rows} times, but {:?}", self.state)));
        }
        if audit_rows != rows {
            return Ok(Some(format!("stored {rows} times with {audit_rows} audit rows")));
        }
        if *rows == 1 && *content != self.write.stored_content()? {
            return Ok(Some(format!("stored with the content {content:?}")));
        }
        Ok(match &self.state {
            State::Acknowledged(Some(acknowledged)) if id.as_ref() != Some(acknowledged) => {
                Some(format!("stored with the id {id:?}, but {acknowledged} was acknowledged"))
            }
            _ => None,
        })
    }
}

async fn response_json(response: Response) -> Result<Value> {
    let (status, path) = (response.status(), response.url().path().to_owned());
    let text = response.text().await?;
    if !status.is_success() {
        bail!("{path} returned {status}: {text}");
    }
    Ok(serde_json::from_str(&text)?)
}
