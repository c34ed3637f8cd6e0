//! Somebody who writes without end and notes what was acknowledged: afterwards each of it must be there, once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::check::{Database, Found, found};
use crate::write::{Kind, Write};

/// A client that opens no proxy and follows no redirect.
///
/// # Errors
/// There is no TLS to be had.
pub fn client() -> Result<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    Ok(client.timeout(Duration::from_secs(15)).build()?)
}

/// What was answered so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Writes that were acknowledged.
    pub acknowledged: usize,
    /// Answers by their status.
    pub statuses: BTreeMap<u16, usize>,
    /// Requests that were not answered: the connection was refused, or ended.
    pub unanswered: usize,
    /// The longest that an answer took.
    pub longest: Duration,
    /// Answers that nothing excuses.
    pub wrong: Vec<String>,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.acknowledged += other.acknowledged;
        self.unanswered += other.unanswered;
        self.longest = self.longest.max(other.longest);
        self.wrong.extend_from_slice(&other.wrong);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self
    }
}

/// Somebody who writes, in an organization of their own.
pub struct Writer {
    client: Client,
    base: String,
    token: String,
    org: String,
    entries: Vec<Entry>,
    tally: Tally,
}

/// The journal's line.
struct Entry {
    write: Write,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Perhaps carried out.
    Open,
    /// Acknowledged, by this id where the answer was read.
    Done(Option<String>),
    /// Refused: not to be there.
    Refused,
}

impl Writer {
    /// Signs in and makes what is written to. The organization's name is that of the writer.
    ///
    /// # Errors
    /// The service does not take it.
    pub async fn start(base: &str, name: &str) -> Result<Self> {
        let client = client()?;
        let login = client.post(format!("{base}/v1/auth/dev/login")).json(&json!({ "subject": name }));
        let session = answer(login.send().await?).await?;
        let token = session.get("token").and_then(Value::as_str).context("no token")?.to_owned();
        for (path, body) in
            [("projects", json!({ "name": "site" })), ("dns/zones", json!({ "name": format!("{name}.example.org") }))]
        {
            let make = client.post(format!("{base}/v1/orgs/{name}/{path}")).bearer_auth(&token).json(&body);
            answer(make.send().await?).await?;
        }
        let (base, org) = (base.to_owned(), name.to_owned());
        Ok(Self { client, base, token, org, entries: Vec::new(), tally: Tally::default() })
    }

    /// The session's token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The organization.
    #[must_use]
    pub fn org(&self) -> &str {
        &self.org
    }

    /// What was answered so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The addresses that were invited, by writes that were acknowledged.
    #[must_use]
    pub fn invited(&self) -> Vec<String> {
        let done = self.entries.iter().filter(|entry| matches!(entry.state, State::Done(_)));
        let invites = done.filter(|entry| entry.write.kind == Kind::Invite);
        invites.map(|entry| format!("{}@{}.example.org", entry.write.name, self.org)).collect()
    }

    /// Writes one thing after the other until `stop` says so, each again until it is acknowledged. What is still under
    /// way in another attempt is left for [`Writer::settle`].
    ///
    /// # Errors
    /// A bundle cannot be made.
    pub async fn run(&mut self, stop: impl Fn() -> bool) -> Result<()> {
        while !stop() {
            let number = self.entries.len();
            let kind = Kind::ALL.get(number % Kind::ALL.len()).copied().unwrap_or(Kind::Project);
            self.entries.push(Entry { write: Write::new(kind, number), state: State::Open });
            while !stop() && !self.attempt(number).await? {
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Sends again what was not acknowledged, until it is: an attempt that was killed holds its key for fifteen seconds.
    ///
    /// # Errors
    /// Half a minute was not enough.
    pub async fn settle(&mut self) -> Result<()> {
        let start = Instant::now();
        while let Some(at) = self.entries.iter().position(|entry| entry.state == State::Open) {
            let late = start.elapsed() > Duration::from_secs(30);
            ensure!(
                !late,
                "{} is not acknowledged within 30 s",
                self.entries.iter().filter(|it| it.state == State::Open).count()
            );
            self.attempt(at).await?;
            if self.entries.get(at).is_some_and(|entry| entry.state == State::Open) {
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// What is not as the journal has it.
    ///
    /// # Errors
    /// Postgres is away.
    pub async fn check(&self, database: &str) -> Result<Vec<String>> {
        let database = Database::connect(database).await?;
        let mut wrong = self.tally.wrong.clone();
        for kind in Kind::ALL {
            let mut found = found(&database, kind, &self.org).await?;
            for entry in self.entries.iter().filter(|entry| entry.write.kind == kind) {
                let there = found.remove(&entry.write.name).unwrap_or_default();
                wrong
                    .extend(entry.fault(&there)?.map(|fault| format!("{} of {}: {fault}", entry.write.name, self.org)));
            }
            // Others may have written too, and call it otherwise.
            let unknown = found.keys().filter(|name| kind.names(name));
            wrong.extend(unknown.map(|name| format!("{name} of {}: nobody wrote it", self.org)));
        }
        Ok(wrong)
    }

    /// Sends a write once. Whether to go on to the next.
    async fn attempt(&mut self, at: usize) -> Result<bool> {
        let Some(entry) = self.entries.get_mut(at) else { return Ok(true) };
        let request = entry.write.request(&self.client, &self.base, &self.org)?.bearer_auth(&self.token);
        let start = Instant::now();
        let Ok(response) = request.send().await else {
            self.tally.unanswered += 1;
            return Ok(false);
        };
        let status = response.status();
        let Ok(text) = response.text().await else {
            self.tally.unanswered += 1;
            return Ok(false);
        };
        self.tally.longest = self.tally.longest.max(start.elapsed());
        *self.tally.statuses.entry(status.as_u16()).or_default() += 1;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let code = body.get("code").and_then(Value::as_str).unwrap_or_default();
        entry.state = match (status.as_u16(), code) {
            (200..=299, _) => State::Done(entry.write.id(&body)),
            (409, "idempotency_answer_lost") => State::Done(None),
            (409, "idempotency_in_progress") => return Ok(true),
            (503 | 429, _) => return Ok(false),
            _ => {
                self.tally.wrong.push(format!("{} of {} was answered {status}: {text}", entry.write.name, self.org));
                State::Refused
            }
        };
        self.tally.acknowledged += usize::from(matches!(entry.state, State::Done(_)));
        Ok(true)
    }
}

impl Entry {
    fn fault(&self, there: &Found) -> Result<Option<String>> {
        let Found { rows, audited, id, content } = there;
        let (least, most) = match &self.state {
            State::Open => (0, 1),
            State::Done(_) => (1, 1),
            State::Refused => (0, 0),
        };
        if !(least..=most).contains(rows) {
            return Ok(Some(format!("there {rows} times, and {:?}", self.state)));
        }
        if audited != rows {
            return Ok(Some(format!("there {rows} times with {audited} audit rows")));
        }
        if *rows == 1 && *content != self.write.content()? {
            return Ok(Some(format!("holds {content:?}")));
        }
        Ok(match &self.state {
            State::Done(Some(told)) if id.as_ref() != Some(told) => {
                Some(format!("is {id:?}, and {told} was acknowledged"))
            }
            _ => None,
        })
    }
}

async fn answer(response: Response) -> Result<Value> {
    let (status, path) = (response.status(), response.url().path().to_owned());
    let text = response.text().await?;
    if !status.is_success() {
        bail!("{path} answered {status}: {text}");
    }
    Ok(serde_json::from_str(&text)?)
}
