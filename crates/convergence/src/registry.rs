//! Which context owns each part of the desired state, and which one receives each kind of report.
//!
//! Filled once, when the process wires its contexts. The core of this crate knows parts and kinds by name only.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::{Malformed, ProjectId};
use protocol::{Change, DesiredPart, Report, ReportKind};
use serde_json::Value;
use store::Connection;

use crate::error::ConvergenceError;
use crate::ports::ReportReceiver;

/// Two contexts registered for the same part, or for the same kind of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AlreadyRegistered {
    #[error("the part {0} of the desired state has an owner already")]
    Part(&'static str),
    #[error("reports of kind {0} have a receiver already")]
    Kind(&'static str),
}

/// The registered parts and kinds.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    parts: BTreeMap<&'static str, fn(&Change) -> serde_json::Result<()>>,
    receivers: BTreeMap<&'static str, Arc<dyn Dispatch>>,
}

impl Registry {
    pub(crate) fn own<P: DesiredPart>(&mut self) -> Result<(), AlreadyRegistered> {
        let check = |change: &Change| change.read::<P>().map(drop);
        match self.parts.insert(P::NAME, check) {
            None => Ok(()),
            Some(_) => Err(AlreadyRegistered::Part(P::NAME)),
        }
    }

    pub(crate) fn receive<K: ReportKind>(
        &mut self,
        receiver: Arc<dyn ReportReceiver<K>>,
    ) -> Result<(), AlreadyRegistered> {
        match self.receivers.insert(K::NAME, Arc::new(Typed { receiver, kind: PhantomData })) {
            None => Ok(()),
            Some(_) => Err(AlreadyRegistered::Kind(K::NAME)),
        }
    }

    /// Checks that a stored part has the shape of its name, so that a damaged row is this service's error and not the
    /// node's. A part that no context of this release owns is passed on unread: nodes ignore it.
    pub(crate) fn check(&self, change: &Change) -> store::Result<()> {
        let check = self.parts.get(change.part.as_str());
        check.map_or(Ok(()), |check| check(change)).map_err(store::Error::inconsistent)
    }

    /// The receiver of each report of a batch.
    ///
    /// # Errors
    /// [`ConvergenceError::Malformed`] for a kind that no context registered for.
    pub(crate) fn receivers(&self, reports: &[Report]) -> Result<Vec<Arc<dyn Dispatch>>, ConvergenceError> {
        let receiver = |(at, report): (usize, &Report)| {
            let receiver = self.receivers.get(report.kind.as_str()).cloned();
            receiver.ok_or_else(|| malformed(at, "kind", format!("{} is not a kind of report", report.kind)))
        };
        reports.iter().enumerate().map(receiver).collect()
    }
}

/// A receiver whose kind is known at run time only.
#[async_trait]
pub(crate) trait Dispatch: Send + Sync {
    /// Reads the report, which is at this index of its batch, and hands it to its receiver.
    async fn dispatch(
        &self,
        tx: &mut Connection,
        at: usize,
        project: ProjectId,
        report: Value,
    ) -> Result<(), ConvergenceError>;
}

struct Typed<K> {
    receiver: Arc<dyn ReportReceiver<K>>,
    kind: PhantomData<fn() -> K>,
}

#[async_trait]
impl<K: ReportKind> Dispatch for Typed<K> {
    async fn dispatch(
        &self,
        tx: &mut Connection,
        at: usize,
        project: ProjectId,
        report: Value,
    ) -> Result<(), ConvergenceError> {
        let report = serde_json::from_value::<K>(report).map_err(|error| malformed(at, "report", error))?;
        Ok(self.receiver.receive(tx, project, report).await?)
    }
}

/// A validation error of one report of a batch.
pub(crate) fn malformed(at: usize, field: &str, message: impl ToString) -> ConvergenceError {
    Malformed::new(format!("reports[{at}].{field}"), message).into()
}
