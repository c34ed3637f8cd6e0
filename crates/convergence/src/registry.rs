//! The registry of parts of the desired state and kinds of reports.
//!
//! Contexts register at startup. The rest of this crate knows parts and kinds only by name.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::{InvalidField, ProjectId};
use protocol::{Change, DesiredPart, Report, ReportKind};
use serde_json::Value;
use store::{Connection, Error, Store};

use crate::error::ConvergenceError;
use crate::ports::{PartSource, ReportReceiver};

/// Two contexts registered for the same part or kind of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AlreadyRegistered {
    #[error("the part {0} of the desired state already has an owner")]
    Part(&'static str),
    #[error("the report kind {0} already has a receiver")]
    Kind(&'static str),
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
    /// In the desired state. The function checks that a value matches the type of the part.
    Stored(fn(&Change) -> serde_json::Result<()>),
    /// In the tables of the part's owner.
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

    /// Completes the parts of a response. Checks that a stored part matches the type that is registered for its name, so
    /// that a corrupt row fails here and not in the node. Loads the values of the other parts, in one query for each
    /// name. Passes on a part that no context of this release owns, because nodes ignore unknown parts.
    pub(crate) async fn complete(&self, store: &Store, changes: &mut [Change]) -> store::Result<()> {
        for (name, part) in &self.parts {
            let mut desired: Vec<&mut Change> =
                changes.iter_mut().filter(|change| change.part == *name && change.desired.is_some()).collect();
            match part {
                Part::Stored(check) => {
                    desired.iter().try_for_each(|change| check(change)).map_err(Error::inconsistent)?
                }
                Part::Sourced(_) if desired.is_empty() => {}
                Part::Sourced(source) => source.load(&mut *store.connection().await?, &mut desired).await?,
            }
        }
        Ok(())
    }

    /// Returns the receiver of each report of a batch.
    ///
    /// # Errors
    /// [`ConvergenceError::InvalidReport`] for a kind without a receiver.
    pub(crate) fn receivers(&self, reports: &[Report]) -> Result<Vec<Arc<dyn ErasedReceiver>>, ConvergenceError> {
        let receiver = |(index, report): (usize, &Report)| {
            let receiver = self.receivers.get(report.kind.as_str()).cloned();
            receiver
                .ok_or_else(|| invalid_report(index, "kind", format!("{} is not a known kind of report", report.kind)))
        };
        reports.iter().enumerate().map(receiver).collect()
    }
}

/// A [`PartSource`] whose part is only known at run time.
#[async_trait]
trait ErasedSource: Send + Sync {
    /// Replaces the markers of the part with its values.
    async fn load(&self, connection: &mut Connection, changes: &mut [&mut Change]) -> store::Result<()>;
}

struct TypedSource<P>(Arc<dyn PartSource<P>>);

#[async_trait]
impl<P: DesiredPart> ErasedSource for TypedSource<P> {
    async fn load(&self, connection: &mut Connection, changes: &mut [&mut Change]) -> store::Result<()> {
        let projects = changes.iter().map(|change| change.project.parse::<ProjectId>());
        let projects = projects.collect::<Result<Vec<_>, _>>().map_err(Error::inconsistent)?;
        let mut values = self.0.load(connection, &projects).await?;
        for (change, project) in changes.iter_mut().zip(projects) {
            let value = values.remove(&project).map(serde_json::to_value);
            change.desired = value.transpose().map_err(Error::inconsistent)?;
        }
        Ok(())
    }
}

/// A [`ReportReceiver`] whose kind is only known at run time.
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
