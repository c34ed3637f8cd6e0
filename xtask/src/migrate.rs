//! `migrate`: applies and reverts migrations. It is also for operators, so it needs only a database URL, and neither
//! cargo nor a checkout.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use store::migrations::{self, Migration, Migrator};

use crate::output::out;
use crate::setting::Database;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print the SQL without running it
    #[arg(long, global = true)]
    dry_run: bool,
    #[command(flatten)]
    database: Database,
    /// How long a statement waits for a table lock before the migration fails
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 5)]
    lock_timeout: u64,
}

#[derive(Subcommand, Clone, Copy)]
enum Command {
    /// Apply all pending migrations
    Up,
    /// Revert the newest migrations
    Down {
        /// The number of migrations to revert
        #[arg(default_value_t = 1)]
        count: usize,
    },
    /// List all migrations with their state
    Status,
    /// Fail unless exactly the migrations of this program are applied
    Check,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let mut conn = migrations::connect(args.database.url()?).await?;
    let lock_timeout = Duration::from_secs(args.lock_timeout);
    let migrator = Migrator { lock_timeout, dry_run: args.dry_run, ..Migrator::default() };
    match args.command {
        Command::Up => report("applied", migrator.up(&mut conn).await?, args.dry_run, |it| ("up.sql", it.up))?,
        Command::Down { count } => {
            report("reverted", migrator.down(&mut conn, count).await?, args.dry_run, |it| ("down.sql", it.down))?;
        }
        Command::Check => migrator.check(&mut conn).await?,
        Command::Status => {
            let status = migrator.status(&mut conn).await?;
            status.applied.iter().try_for_each(|it| out!("applied  {}", it.name))?;
            status.pending.iter().try_for_each(|it| out!("pending  {}", it.name))?;
            status.unknown.iter().try_for_each(|version| out!("unknown  {version}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn report(
    done: &str,
    migrations: Vec<&Migration>,
    dry_run: bool,
    file: impl Fn(&Migration) -> (&'static str, &'static str),
) -> io::Result<()> {
    if migrations.is_empty() {
        out!("nothing to do")?;
    }
    for migration in migrations {
        let (name, sql) = file(migration);
        if dry_run {
            out!("-- migrations/{}/{name}\n{sql}", migration.name)?;
        } else {
            out!("{done} {}", migration.name)?;
        }
    }
    Ok(())
}
