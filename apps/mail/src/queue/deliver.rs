//! Hands queued mail over to the control plane.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use daemon::{Backoff, error_chain};
use protocol::InboundMail;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use uuid::Uuid;

use super::pace::{Availability, Pace, Period};
use super::schedule::Schedule;
use super::stored::StoredMail;
use super::{ProjectCopy, Queue, QueuedMail};
use crate::clock::now;
use crate::core::{Core, Handover, HandoverError};
use crate::metrics::Metrics;

/// The maximum delay between attempts to hand over a mail.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The interval at which the age of the oldest mail is measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// A mail that waits for an attempt, or whose attempt is in progress.
struct Entry {
    mail: QueuedMail,
    backoff: Backoff,
    /// The indices of the copies that need no further attempt.
    done: BTreeSet<usize>,
    /// The indices of the copies that the control plane refuses, with the times of their first refusals.
    refused: BTreeMap<usize, Instant>,
}

/// The result of an attempt.
struct Ended {
    /// The mail needs no further attempt.
    is_done: bool,
    availability: Availability,
}

/// Hands over each mail, and repeats failed attempts until the control plane has the mail. The projects take turns: a
/// mail counts for the project of its first copy.
pub struct Deliverer {
    queue: Queue,
    core: Core,
    metrics: Metrics,
    committed: UnboundedReceiver<QueuedMail>,
    /// All mails that are not handed over. They are ordered by time.
    queued: BTreeSet<Uuid>,
    schedule: Schedule<Entry>,
    pace: Pace,
    /// The attempts in progress. An attempt returns its mail.
    attempts: JoinSet<(Entry, Ended)>,
    /// The projects and periods of the attempts in progress.
    started: HashMap<task::Id, (String, Period)>,
}

impl Deliverer {
    pub fn new(queue: Queue, core: Core, metrics: Metrics, committed: UnboundedReceiver<QueuedMail>) -> Self {
        let (queued, schedule, pace) = (BTreeSet::new(), Schedule::new(), Pace::new());
        let (attempts, started) = (JoinSet::new(), HashMap::new());
        Self { queue, core, metrics, committed, queued, schedule, pace, attempts, started }
    }

    /// Runs until it is aborted. An interrupted attempt is repeated after the next start.
    pub async fn run(mut self) {
        let mut measure = interval(MEASURE_INTERVAL);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.start_due();
            let permitted = self.pace.next_attempt();
            let next = permitted.and_then(|permitted| Some(self.schedule.next_due()?.max(permitted)));
            tokio::select! {
                committed = self.committed.recv() => match committed {
                    Some(mail) => self.add(mail),
                    None => return,
                },
                Some(ended) = self.attempts.join_next_with_id() => self.finish(ended),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                _ = measure.tick() => {}
            }
            self.measure();
        }
    }

    fn add(&mut self, mail: QueuedMail) {
        self.queued.insert(mail.id);
        let (done, refused) = (BTreeSet::new(), BTreeMap::new());
        let entry = Entry { mail, backoff: Backoff::up_to(MAX_DELAY), done, refused };
        self.wait(entry, Instant::now());
    }

    fn wait(&mut self, entry: Entry, due: Instant) {
        let project = entry.mail.projects.first().cloned().unwrap_or_default();
        self.schedule.add(&project, due, entry.mail.id, entry);
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        while self.pace.next_attempt().is_some_and(|permitted| permitted <= now) {
            let Some((project, mut entry)) = self.schedule.take_due(now) else { return };
            let attempt = Attempt { queue: self.queue.clone(), core: self.core.clone(), metrics: self.metrics.clone() };
            let task = self.attempts.spawn(async move {
                let ended = attempt.run(&mut entry).await;
                (entry, ended)
            });
            self.started.insert(task.id(), (project, self.pace.start()));
        }
    }

    fn finish(&mut self, ended: Result<(task::Id, (Entry, Ended)), task::JoinError>) {
        let now = Instant::now();
        let task = ended.as_ref().map_or_else(task::JoinError::id, |(task, _)| *task);
        if let Some((project, period)) = self.started.remove(&task) {
            self.schedule.end(&project);
            let availability = ended.as_ref().map_or(Availability::Unknown, |(_, (_, ended))| ended.availability);
            self.pace.end(period, availability, now);
        }
        match ended {
            Ok((_, (entry, Ended { is_done: true, .. }))) => {
                self.queued.remove(&entry.mail.id);
                self.queue.end(&entry.mail);
            }
            Ok((_, (mut entry, _))) => {
                let due = now + entry.backoff.next_delay();
                self.wait(entry, due);
            }
            // The file of the mail still exists, so the next start of the node repeats the attempt.
            Err(error) => tracing::error!(%error, "an attempt to hand over a mail ended unexpectedly"),
        }
    }

    fn measure(&self) {
        let age = self.queued.first().and_then(|id| id.get_timestamp()).map_or(0.0, |created| {
            let (seconds, _) = created.to_unix();
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
            let age = now().timestamp().saturating_sub(seconds).max(0) as f64;
            age
        });
        self.metrics.queue(self.queued.len(), age);
    }
}

/// An attempt to hand over a mail.
struct Attempt {
    queue: Queue,
    core: Core,
    metrics: Metrics,
}

impl Attempt {
    /// Hands over the missing copies. The mail is done if no copy needs a further attempt, or if the file is damaged.
    async fn run(&self, entry: &mut Entry) -> Ended {
        let (id, path) = (entry.mail.id.simple(), self.queue.path(entry.mail.id));
        let mut availability = Availability::Unknown;
        let mail = match StoredMail::open(path.clone()).await {
            Ok(mail) => mail,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let is_done = set_aside(&path, "damaged").await;
                tracing::error!(%error, %id, moved = is_done, "a mail in the queue is damaged");
                self.metrics.handover("damaged");
                return Ended { is_done, availability };
            }
            Err(error) => {
                tracing::error!(%error, %id, "failed to read a mail in the queue");
                return Ended { is_done: false, availability };
            }
        };
        for (index, copy) in mail.envelope.copies.iter().enumerate() {
            if entry.done.contains(&index) {
                continue;
            }
            match self.hand_over(&mail, copy).await {
                Ok(outcome) => {
                    availability = availability.max(Availability::Available);
                    if outcome == Handover::Refused {
                        let since = *entry.refused.entry(index).or_insert_with(Instant::now);
                        if since.elapsed() < self.queue.0.limits.refusal {
                            tracing::warn!(%id, mail = copy.id, project = copy.project, "a mail was refused; retrying");
                            continue;
                        }
                        tracing::error!(%id, mail = copy.id, project = copy.project, "a mail was refused");
                    } else {
                        entry.refused.remove(&index);
                        tracing::info!(%id, mail = copy.id, project = copy.project, ?outcome, "handed over a mail");
                    }
                    self.metrics.handover(outcome.as_str());
                    entry.done.insert(index);
                }
                Err(error) => {
                    availability = availability.max(match &error {
                        HandoverError::Unreadable(_) => Availability::Unknown,
                        error if error.is_outage() => Availability::Unavailable,
                        _ => Availability::Available,
                    });
                    let error = error_chain(error);
                    tracing::warn!(error, %id, mail = copy.id, "failed to hand over a mail; retrying");
                    self.metrics.handover("failed");
                }
            }
        }
        if entry.done.len() < mail.envelope.copies.len() {
            return Ended { is_done: false, availability };
        }
        if !entry.refused.is_empty() {
            // The mail was acknowledged, so an operator decides about it.
            return Ended { is_done: set_aside(&path, "refused").await, availability };
        }
        // If the process is killed before it removes the file, the control plane receives the same ids again.
        if let Err(error) = tokio::fs::remove_file(path).await {
            tracing::error!(%error, %id, "failed to remove a mail from the queue");
        }
        Ended { is_done: true, availability }
    }

    async fn hand_over(&self, stored: &StoredMail, copy: &ProjectCopy) -> Result<Handover, HandoverError> {
        let envelope = &stored.envelope;
        let size_bytes = envelope.size + copy.trace.len() as u64;
        let body = stored.body(&copy.trace).await.map_err(|error| HandoverError::Unreadable(error.into()))?;
        self.core.upload(&copy.project, &copy.id, size_bytes, body).await?;
        let mail = InboundMail {
            project: copy.project.clone(),
            from: envelope.from.clone(),
            to: copy.to.clone(),
            subject: envelope.subject.clone(),
            spf: envelope.spf.clone(),
            size_bytes,
            received_at: envelope.received_at.clone(),
        };
        self.core.hand_over(&copy.id, &mail).await
    }
}

/// Renames the file of a mail, so that it is not handed over any more. Returns whether it succeeded.
async fn set_aside(path: &Path, extension: &str) -> bool {
    let moved = tokio::fs::rename(path, path.with_extension(extension)).await;
    if let Err(error) = &moved {
        tracing::error!(%error, extension, "failed to set a mail in the queue aside");
    }
    moved.is_ok()
}
