//! Conversion between the types of `databases` and those of the protocol.

use databases::{DatabasePart, GenerationRecord, Login, OperationKind, PartOperation, Phase, StoredObject};
use kernel::{Limits, ProjectId, Time};
use protocol::{
    Database, DatabaseLogin, DatabaseOperation, DatabaseOperationKind, GenerationKind, GenerationRef, GenerationReport,
    OperationPhase, Verifier,
};
use store::Error;

/// Builds the part of a project with the limits of its plan.
pub(super) fn part(limits: &Limits, values: DatabasePart) -> store::Result<Database> {
    let DatabasePart {
        revision,
        id,
        verifier,
        tokens,
        plan,
        retention_plan,
        epoch,
        suspended,
        source,
        operation,
        exports,
    } = values;
    Ok(Database {
        revision,
        id: id.to_string(),
        verifier: verifier.map(|verifier| Verifier::new(verifier.0)),
        tokens: tokens.into_iter().map(login).collect(),
        size_bytes: limits.for_plan(plan).database_bytes,
        backup_days: limits.for_plan(retention_plan).backup_days,
        epoch,
        source: source.map(object).transpose()?,
        operation: operation.map(to_operation).transpose()?,
        exports: exports.iter().map(ToString::to_string).collect(),
        suspended,
    })
}

fn login(login: Login) -> DatabaseLogin {
    let Login { user, verifier, expires_at } = login;
    let expires_at = expires_at.map(|time| time.to_string());
    DatabaseLogin { user: user.to_string(), verifier: Verifier::new(verifier.0), expires_at }
}

fn object(object: StoredObject) -> store::Result<GenerationRef> {
    let StoredObject { key, size_bytes, sha256 } = object;
    Ok(GenerationRef { key, size_bytes: u64::try_from(size_bytes).map_err(Error::inconsistent)?, sha256 })
}

fn to_operation(operation: PartOperation) -> store::Result<DatabaseOperation> {
    let PartOperation { id, kind, phase, generation } = operation;
    let kind = match kind {
        OperationKind::RestoreGeneration => DatabaseOperationKind::RestoreGeneration,
        OperationKind::Delete => DatabaseOperationKind::Delete,
        OperationKind::Evict | OperationKind::Restore => {
            return Err(Error::inconsistent(format!("nodes do not execute the operation {kind}")));
        }
    };
    let phase = match phase {
        Phase::Draining => OperationPhase::Draining,
        Phase::Sealing => OperationPhase::Sealing,
        Phase::Committing => OperationPhase::Committing,
        Phase::Reactivating => OperationPhase::Reactivating,
        Phase::Done => return Err(Error::inconsistent("a running operation is done")),
    };
    Ok(DatabaseOperation { id: id.to_string(), kind, phase, generation: generation.map(object).transpose()? })
}

/// Converts a phase of a report.
pub(super) const fn phase(phase: OperationPhase) -> Phase {
    match phase {
        OperationPhase::Draining => Phase::Draining,
        OperationPhase::Sealing => Phase::Sealing,
        OperationPhase::Committing => Phase::Committing,
        OperationPhase::Reactivating => Phase::Reactivating,
    }
}

/// Converts a reported generation of a project. Returns `None` if its key does not belong to the project, or an id or a
/// time is malformed.
pub(super) fn generation(project: ProjectId, report: GenerationReport) -> Option<GenerationRecord> {
    let GenerationReport { database, key, epoch, kind, size_bytes, sha256, created_at } = report;
    let kind = match kind {
        GenerationKind::Scheduled => databases::GenerationKind::Scheduled,
        GenerationKind::PreRestore => databases::GenerationKind::PreRestore,
        GenerationKind::Final => databases::GenerationKind::Final,
    };
    if !is_key_of(project, &key) {
        return None;
    }
    let (database, created_at) = (database.parse().ok()?, time(&created_at)?);
    Some(GenerationRecord { database, key, epoch, kind, size_bytes: bytes(size_bytes), sha256, created_at })
}

/// Returns whether a report of the project may name the stored object.
pub(super) fn is_key_of(project: ProjectId, key: &str) -> bool {
    let names = key.strip_prefix(&format!("{project}/"));
    names.is_some_and(|names| names.split('/').all(|name| !matches!(name, "" | "." | "..")))
}

/// Parses a time of a report.
pub(super) fn time(text: &str) -> Option<Time> {
    text.parse().ok()
}

/// Converts a size of a report.
pub(super) fn bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
