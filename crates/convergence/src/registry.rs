//! The registry of parts of the desired state and kinds of reports.
//!
//! Contexts register at startup. The rest of this crate knows parts and kinds only by their names.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::{InvalidField, ProjectId};
use protocol::{Change, DesiredPart, Report, ReportKind, UnavailablePart};
use serde_json::Value;
use store::{Connection, Error, Store};

use crate::error::ConvergenceError;
use crate::ports::{PartSource, ReportReceiver};
use crate::read_part::{self, ReadPart};

/// The maximum number of parts of one name in a batch. The size is checked after each batch.
pub(crate) const MAX_BATCH: usize = 50;

/// The size of the parts of a response, in bytes of JSON, from which the others are left out. A response exceeds it by at
/// most the last batch, which contains the values of at most one query of each large part ([`PartSource::max_batch`]).
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Two contexts registered the same part or the same kind of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AlreadyRegistered {
    #[error("the part {0} of the desired state already has an owner")]
    Part(&'static str),
    #[error("the report kind {0} already has a receiver")]
    Kind(&'static str),
}

/// The complete parts of a response.
#[derive(Default)]
pub(crate) struct CompleteParts {
    pub(crate) parts: Vec<Change>,
    /// The parts whose value is unreadable.
    pub(crate) unavailable: Vec<UnavailablePart>,
    /// The revision of the last part, if others were left out because of the size of the response.
    pub(crate) left_out_after: Option<i64>,
}

/// The registered parts and kinds.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    parts: BTreeMap<&'static str, Part>,
    receivers: BTreeMap<&'static str, Arc<dyn ErasedReceiver>>,
}

/// A registered part, by the location of its values.
#[derive(Clone)]
enum Part {
    /// The values are in the desired state. The function checks that a value matches the type of the part.
    Stored(fn(&Change) -> serde_json::Result<()>),
    /// The values are in the tables of the part's owner.
    Sourced(Arc<dyn ErasedSource>),
}

impl Registry {
    pub(crate) fn register_part<P: DesiredPart>(&mut self) -> Result<(), AlreadyRegistered> {
        self.register(P::NAME, Part::Stored(|change| change.read::<P>().map(drop)))
    }

    pub(crate) fn register_sourced_part<P: DesiredPart>(
        &mut self,
        source: Arc<dyn PartSource<P>>,
    ) -> Result<(), AlreadyRegistered> {
        self.register(P::NAME, Part::Sourced(Arc::new(TypedSource(source))))
    }

    fn register(&mut self, name: &'static str, part: Part) -> Result<(), AlreadyRegistered> {
        read_part::create_counter(name);
        match self.parts.insert(name, part) {
            None => Ok(()),
            Some(_) => Err(AlreadyRegistered::Part(name)),
        }
    }

    pub(crate) fn register_receiver<K: ReportKind>(
        &mut self,
        receiver: Arc<dyn ReportReceiver<K>>,
    ) -> Result<(), AlreadyRegistered> {
        match self.receivers.insert(K::NAME, Arc::new(TypedReceiver { receiver, kind: PhantomData })) {
            None => Ok(()),
            Some(_) => Err(AlreadyRegistered::Kind(K::NAME)),
        }
    }

    /// Completes the first parts of a response, until they have [`MAX_BYTES`]. Checks that a stored part matches the type
    /// that is registered for its name, so that a corrupt row fails here and not in the node. Loads the values of the
    /// other parts. Does not change a part that no context of this release owns, because nodes ignore unknown parts.
    pub(crate) async fn complete(&self, store: &Store, changes: Vec<Change>) -> store::Result<CompleteParts> {
        let (mut complete, mut bytes) = (CompleteParts::default(), 0);
        let mut changes = changes.into_iter();
        while bytes < MAX_BYTES && !changes.as_slice().is_empty() {
            let mut batch = next_batch(&mut changes);
            let is_whole = self.complete_batch(store, &mut batch, MAX_BYTES - bytes).await?;
            bytes += batch.iter().map(ReadPart::json_bytes).sum::<usize>();
            let is_last = is_whole && changes.as_slice().is_empty();
            complete.left_out_after = batch.last().map(|read| read.change.revision).filter(|_| !is_last);
            let (parts, unavailable) = read_part::split(batch);
            complete.parts.extend(parts);
            complete.unavailable.extend(unavailable);
        }
        Ok(complete)
    }

    /// Completes the parts of a batch. Stops the queries of a part when its values have `max_bytes`, and removes the parts
    /// from the first one without a value on. Returns whether it removed none.
    async fn complete_batch(&self, store: &Store, batch: &mut Vec<ReadPart>, max_bytes: usize) -> store::Result<bool> {
        let mut end = i64::MAX;
        for (name, part) in &self.parts {
            let desired = batch.iter_mut().filter(|read| read.change.part == *name && read.change.desired.is_some());
            match part {
                Part::Stored(check) => {
                    desired.for_each(|read| read.result = check(&read.change).map_err(Error::inconsistent));
                }
                Part::Sourced(source) => {
                    let (mut desired, mut bytes): (Vec<&mut ReadPart>, usize) = (desired.collect(), 0);
                    for values in desired.chunks_mut(source.max_batch()) {
                        if bytes >= max_bytes {
                            end = values.first().map_or(end, |read| end.min(read.change.revision));
                            break;
                        }
                        source.load(&mut *store.connection().await?, values).await?;
                        bytes += values.iter().map(|read| read.json_bytes()).sum::<usize>();
                    }
                }
            }
        }
        let parts = batch.len();
        batch.retain(|read| read.change.revision < end);
        Ok(batch.len() == parts)
    }

    /// Returns the receiver of each report of a batch.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::InvalidReport`] for a kind without a receiver.
    pub(crate) fn receivers(&self, reports: &[Report]) -> Result<Vec<Arc<dyn ErasedReceiver>>, ConvergenceError> {
        let receiver = |(index, report): (usize, &Report)| {
            let receiver = self.receivers.get(report.kind.as_str()).cloned();
            receiver
                .ok_or_else(|| invalid_report(index, "kind", format!("{} is not a known kind of report", report.kind)))
        };
        reports.iter().enumerate().map(receiver).collect()
    }
}

/// Takes the next parts, until one name occurs as often as a batch permits.
fn next_batch(changes: &mut impl Iterator<Item = Change>) -> Vec<ReadPart> {
    let (mut batch, mut counts) = (Vec::new(), BTreeMap::<String, usize>::new());
    for change in changes {
        let count = counts.entry(change.part.clone()).or_default();
        *count += 1;
        let is_full = *count >= MAX_BATCH;
        batch.push(ReadPart::from(change));
        if is_full {
            break;
        }
    }
    batch
}

/// A [`PartSource`] whose part is known only at run time.
#[async_trait]
trait ErasedSource: Send + Sync {
    fn max_batch(&self) -> usize;

    /// Replaces the markers of the part with its values.
    async fn load(&self, connection: &mut Connection, parts: &mut [&mut ReadPart]) -> store::Result<()>;
}

struct TypedSource<P>(Arc<dyn PartSource<P>>);

#[async_trait]
impl<P: DesiredPart> ErasedSource for TypedSource<P> {
    fn max_batch(&self) -> usize {
        self.0.max_batch()
    }

    async fn load(&self, connection: &mut Connection, parts: &mut [&mut ReadPart]) -> store::Result<()> {
        let projects = parts.iter().map(|read| read.change.project.parse::<ProjectId>());
        let projects = projects.collect::<Result<Vec<_>, _>>().map_err(Error::inconsistent)?;
        let mut values = self.0.load(connection, &projects).await?;
        for (read, project) in parts.iter_mut().zip(projects) {
            let value = values.remove(&project).transpose();
            let value =
                value.and_then(|value| value.map(serde_json::to_value).transpose().map_err(Error::inconsistent));
            read.result = value.map(|value| read.change.desired = value);
        }
        Ok(())
    }
}

/// A [`ReportReceiver`] whose kind is known only at run time.
#[async_trait]
pub(crate) trait ErasedReceiver: Send + Sync {
    /// Parses the report at `index` of its batch and passes it to the receiver.
    async fn dispatch(
        &self,
        tx: &mut Connection,
        index: usize,
        project: ProjectId,
        report: Value,
    ) -> Result<(), ConvergenceError>;
}

struct TypedReceiver<K> {
    receiver: Arc<dyn ReportReceiver<K>>,
    kind: PhantomData<fn() -> K>,
}

#[async_trait]
impl<K: ReportKind> ErasedReceiver for TypedReceiver<K> {
    async fn dispatch(
        &self,
        tx: &mut Connection,
        index: usize,
        project: ProjectId,
        report: Value,
    ) -> Result<(), ConvergenceError> {
        let report = serde_json::from_value::<K>(report).map_err(|error| invalid_report(index, "report", error))?;
        Ok(self.receiver.receive(tx, project, report).await?)
    }
}

/// Returns a validation error for the report at `index` of a batch.
pub(crate) fn invalid_report(index: usize, field: &str, message: impl ToString) -> ConvergenceError {
    InvalidField::new(format!("reports[{index}].{field}"), message).into()
}
