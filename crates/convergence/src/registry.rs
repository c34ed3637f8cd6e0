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
use store::Connection;

use crate::error::ConvergenceError;
use crate::ports::ReportReceiver;

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
    parts: BTreeMap<&'static str, fn(&Change) -> serde_json::Result<()>>,
    receivers: BTreeMap<&'static str, Arc<dyn ErasedReceiver>>,
}

impl Registry {
    pub(crate) fn register_part<P: DesiredPart>(&mut self) -> Result<(), AlreadyRegistered> {
        let check = |change: &Change| change.read::<P>().map(drop);
        match self.parts.insert(P::NAME, check) {
            None => Ok(()),
            Some(_) => Err(AlreadyRegistered::Part(P::NAME)),
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

    /// Checks that a stored part matches the type that is registered for its name, so that a corrupt row fails here and
    /// not in the node. Skips a part that no context of this release owns, because nodes ignore unknown parts.
    pub(crate) fn check(&self, change: &Change) -> store::Result<()> {
        let check = self.parts.get(change.part.as_str());
        check.map_or(Ok(()), |check| check(change)).map_err(store::Error::inconsistent)
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
