//! Operations on a database: restore, deletion, and their abort.

use client::types::{DeleteRequest, GenerationKind, Operation, OperationStarted, Phase, RestoreRequest};
use client::{Client, Error, Response};

use super::backups::{self, BackupNumber};
use crate::error::CliError;
use crate::polling::poll_until;
use crate::progress::Phases;
use crate::prompt;
use crate::resources::is_insufficient_scope;
use crate::svc::Svc;

/// The options for the confirmation and for waiting.
#[derive(clap::Args)]
struct Options {
    /// The name of the project, to confirm without a prompt
    #[arg(long, value_name = "NAME")]
    confirm: Option<String>,
    /// Do not wait until the operation is complete
    #[arg(long)]
    no_wait: bool,
}

#[derive(clap::Args)]
pub struct Restore {
    /// Number of the backup, as `svc db backups` lists it
    #[arg(required_unless_present = "latest")]
    backup: Option<BackupNumber>,
    /// Restore the newest backup that an earlier restore did not make
    #[arg(long, conflicts_with = "backup")]
    latest: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub struct Delete {
    #[command(flatten)]
    options: Options,
}

impl Restore {
    pub async fn run(self, svc: &Svc<'_>, (client, org, project): (&Client, &str, &str)) -> Result<(), CliError> {
        let generations = match client.database_generations(org, project).send().await {
            // The token may restore but not list.
            Err(error) if self.backup.is_some() && is_insufficient_scope(&error) => Vec::new(),
            listed => listed?.value.items,
        };
        let number = match self.backup {
            Some(number) => number,
            None => {
                // The backup of an earlier restore would undo that restore.
                let newest = generations.iter().find(|it| it.kind != GenerationKind::PreRestore);
                newest.map(BackupNumber::from).ok_or_else(no_backup)?
            }
        };
        let listed = generations.iter().find(|it| BackupNumber::from(*it) == number);
        // The API rejects a number that is not listed.
        let backup = listed.map_or_else(|| number.to_string(), backups::summary);
        let question = format!("Replace the content of the database of {org}/{project} by backup {backup}?");
        self.options.check(project, &question)?;
        svc.out.info(format!("restoring backup {backup}"));
        let BackupNumber { epoch, seq } = number;
        let started = client.database_restore(org, project, &RestoreRequest { epoch, seq }).send().await;
        let started = started.map_err(explain_not_found)?;
        self.options.finish(svc, (client, org, project), started, &format!("restored backup {number}")).await
    }
}

fn no_backup() -> CliError {
    CliError::Other("the database has no backup yet, except those that restores made: see `svc db backups`".to_owned())
}

/// Adds the next step if the backup does not exist.
fn explain_not_found(error: Error) -> CliError {
    match error.status() {
        Some(404) => CliError::Explained(error, "`svc db backups` lists the backups"),
        _ => error.into(),
    }
}

impl Delete {
    pub async fn run(self, svc: &Svc<'_>, (client, org, project): (&Client, &str, &str)) -> Result<(), CliError> {
        self.options.check(project, &format!("Delete the database of {org}/{project}?"))?;
        let confirm = DeleteRequest { confirm: project.to_owned() };
        let started = client.database_delete(org, project, &confirm).send().await?;
        let done = "deleted the database: its last backup can be restored into a new one for 30 days";
        self.options.finish(svc, (client, org, project), started, done).await
    }
}

pub async fn abort(svc: &Svc<'_>, (client, org, project): (&Client, &str, &str), id: &str) -> Result<(), CliError> {
    let operation = client.database_abort(org, project, id).send().await?;
    svc.out.response(&operation, summary)?;
    svc.out.success(format!("aborted {id}: the database is available again"));
    Ok(())
}

impl Options {
    /// Fails unless the user confirms.
    fn check(&self, project: &str, question: &str) -> Result<(), CliError> {
        let is_confirmed = match &self.confirm {
            Some(name) => name == project,
            None => prompt::confirm(question)?,
        };
        if !is_confirmed {
            return Err(CliError::Usage(format!("nothing was changed: confirm with --confirm {project}")));
        }
        Ok(())
    }

    /// Waits for the operation and prints it. Prints only its id with `--no-wait`.
    async fn finish(
        &self,
        svc: &Svc<'_>,
        (client, org, project): (&Client, &str, &str),
        started: Response<OperationStarted>,
        done: &str,
    ) -> Result<(), CliError> {
        let id = &started.operation_id;
        if self.no_wait {
            return svc.out.response(&started, |started| started.operation_id.clone());
        }
        svc.out.info(format!("started {id}; until it is committing, `svc db abort {id}` aborts it"));
        let operation = wait(svc, (client, org, project), id).await?;
        // Report a failure even if the output is closed.
        let printed = svc.out.response(&operation, summary);
        match &operation.terminal_code {
            None => svc.out.success(done),
            Some(code) => return Err(CliError::OperationFailed(format!("{id} ended with {code}"))),
        }
        printed
    }
}

/// Polls an operation until it has ended, and prints its phases.
async fn wait(
    svc: &Svc<'_>,
    (client, org, project): (&Client, &str, &str),
    id: &str,
) -> Result<Response<Operation>, CliError> {
    let mut phases = Phases::default();
    poll_until(
        async || client.database_operation(org, project, id).send().await,
        |operation| {
            let is_done = operation.phase == Phase::Done;
            if !is_done {
                phases.show(svc.out, &operation.phase.to_string());
            }
            is_done
        },
    )
    .await
}

fn summary(operation: &Operation) -> String {
    let Operation { id, kind, phase, terminal_code, .. } = operation;
    let outcome = terminal_code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
    format!("{id}  {kind}  {phase}{outcome}")
}
