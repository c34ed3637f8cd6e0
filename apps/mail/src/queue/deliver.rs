//! Hands queued mail over to the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, ErrorKind};
use std::time::Duration;

use anyhow::Context as _;
use bytes::BytesMut;
use daemon::Backoff;
use futures_util::stream::try_unfold;
use protocol::InboundMail;
use reqwest::Body;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use uuid::Uuid;

use super::{Envelope, ProjectCopy, Queue};
use crate::clock::now;
use crate::core::{Core, Handover};
use crate::metrics::Metrics;

/// The mails that are handed over at the same time.
const MAX_DELIVERIES: usize = 16;
/// The longest time between attempts to hand over a mail.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// How often the age of the oldest mail is measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);
const BLOCK: usize = 64 << 10;

/// A queued mail.
struct Entry {
    id: Uuid,
    backoff: Backoff,
    /// The indices of the copies that were handed over.
    done: BTreeSet<usize>,
}

/// Hands over each mail, and repeats failed attempts until the control plane has the mail.
pub struct Deliverer {
    queue: Queue,
    core: Core,
    metrics: Metrics,
    committed: UnboundedReceiver<Uuid>,
    /// All mails that are not handed over. They are ordered by time.
    queued: BTreeSet<Uuid>,
    /// The mails that wait for their next attempt.
    waiting: BTreeMap<(Instant, Uuid), Entry>,
    /// The attempts in progress. An attempt returns its mail if it must be repeated.
    attempts: JoinSet<(Uuid, Option<Entry>)>,
}

impl Deliverer {
    pub fn new(queue: Queue, core: Core, metrics: Metrics, committed: UnboundedReceiver<Uuid>) -> Self {
        let (queued, waiting, attempts) = (BTreeSet::new(), BTreeMap::new(), JoinSet::new());
        Self { queue, core, metrics, committed, queued, waiting, attempts }
    }

    /// Runs until it is aborted. An interrupted attempt is repeated after the next start.
    pub async fn run(mut self) {
        let mut measure = interval(MEASURE_INTERVAL);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.start_due();
            let next = self.waiting.first_key_value().map(|((due, _), _)| *due);
            let next = next.filter(|_| self.attempts.len() < MAX_DELIVERIES);
            tokio::select! {
                committed = self.committed.recv() => match committed {
                    Some(id) => self.add(id),
                    None => return,
                },
                Some(ended) = self.attempts.join_next() => self.finish(ended),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                _ = measure.tick() => {}
            }
            self.measure();
        }
    }

    fn add(&mut self, id: Uuid) {
        self.queued.insert(id);
        let entry = Entry { id, backoff: Backoff::up_to(MAX_DELAY), done: BTreeSet::new() };
        self.waiting.insert((Instant::now(), id), entry);
    }

    fn start_due(&mut self) {
        while self.attempts.len() < MAX_DELIVERIES {
            let Some(first) = self.waiting.first_entry().filter(|entry| entry.key().0 <= Instant::now()) else {
                return;
            };
            let mut entry = first.remove();
            let attempt = Attempt { queue: self.queue.clone(), core: self.core.clone(), metrics: self.metrics.clone() };
            self.attempts.spawn(async move {
                let id = entry.id;
                let done = attempt.run(&mut entry).await;
                (id, (!done).then_some(entry))
            });
        }
    }

    fn finish(&mut self, ended: Result<(Uuid, Option<Entry>), tokio::task::JoinError>) {
        match ended {
            Ok((id, None)) => drop(self.queued.remove(&id)),
            Ok((id, Some(mut entry))) => {
                let due = Instant::now() + entry.backoff.next_delay();
                self.waiting.insert((due, id), entry);
            }
            // The file of the mail stays, so the next start of the node repeats the attempt.
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
    /// Returns whether the mail is done: the control plane has all copies, or its file is damaged.
    async fn run(&self, entry: &mut Entry) -> bool {
        let id = entry.id.simple();
        let envelope = match self.read(entry.id).await {
            Ok((envelope, _)) => envelope,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let path = self.queue.path(entry.id);
                let moved = tokio::fs::rename(&path, path.with_extension("damaged")).await;
                tracing::error!(%error, %id, moved = moved.is_ok(), "a mail in the queue is damaged");
                self.metrics.handover("damaged");
                return moved.is_ok();
            }
            Err(error) => {
                tracing::error!(%error, %id, "failed to read a mail in the queue");
                return false;
            }
        };
        for (index, copy) in envelope.copies.iter().enumerate() {
            if entry.done.contains(&index) {
                continue;
            }
            match self.hand_over(entry.id, &envelope, copy).await {
                Ok(outcome) => {
                    self.metrics.handover(if outcome == Handover::Received { "received" } else { "no_project" });
                    tracing::info!(%id, mail = copy.id, project = copy.project, ?outcome, "handed over a mail");
                    entry.done.insert(index);
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, %id, mail = copy.id, "failed to hand over a mail; retrying");
                    self.metrics.handover("failed");
                }
            }
        }
        if entry.done.len() < envelope.copies.len() {
            return false;
        }
        // If the process is killed before it removes the file, the control plane receives the same ids again.
        if let Err(error) = tokio::fs::remove_file(self.queue.path(entry.id)).await {
            tracing::error!(%error, %id, "failed to remove a mail from the queue");
        }
        true
    }

    async fn read(&self, id: Uuid) -> std::io::Result<(Envelope, File)> {
        let mut file = File::open(self.queue.path(id)).await?;
        Ok((Envelope::read(&mut file).await?, file))
    }

    async fn hand_over(&self, id: Uuid, envelope: &Envelope, copy: &ProjectCopy) -> anyhow::Result<Handover> {
        let (_, file) = self.read(id).await.context("cannot read the mail")?;
        let size_bytes = envelope.size + u64::try_from(copy.trace.len())?;
        self.core.upload(&copy.id, size_bytes, body(&copy.trace, file, envelope.size)).await?;
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

/// Streams the trace fields, and then the bytes of the mail, which are the first `size` bytes of the file.
fn body(trace: &str, file: File, size: u64) -> Body {
    let reader = Cursor::new(trace.to_owned().into_bytes()).chain(file.take(size));
    Body::wrap_stream(try_unfold(reader, |mut reader| async move {
        let mut block = BytesMut::with_capacity(BLOCK);
        let length = reader.read_buf(&mut block).await?;
        Ok::<_, std::io::Error>((length > 0).then(|| (block.freeze(), reader)))
    }))
}
