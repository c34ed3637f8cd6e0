//! Reads settings of the product for xtask commands.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use kernel::seal::Keys;
use kernel::{ClockRng, Secret};
use settings::{Claim, Error, Setting, Settings, Value};
use store::{Config, Store};
use xtask::postgres::Cluster;
use xtask::workspace;

/// The largest difference between the clocks of this machine and of Postgres, in seconds. `oauth-key rotate` publishes
/// a key 120 s before it signs, and 60 s are required. Half of the remaining 60 s is for the clocks of the servers.
const MAX_CLOCK_DIFFERENCE_SECONDS: i64 = 30;

/// Reads a setting from the environment or the `SVC_CONFIG` file, and a secret also from its `_FILE` setting.
pub fn read_setting<T: Value>(name: &'static str) -> std::result::Result<Option<T>, Error> {
    // Unknown names are accepted here: the programs reject them.
    const CLAIM: Claim = Claim { prefixes: &[], except: &[] };
    let setting = Setting::<Option<T>>::optional(name);
    Settings::from_env(&[setting.row()], &CLAIM)?.opt(&setting)
}

/// The database of an operator command.
#[derive(clap::Args)]
pub struct Database {
    /// The database URL [default: SVC_DATABASE_URL, or the content of the file SVC_DATABASE_URL_FILE]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "dev")]
    database_url: Option<String>,
    /// The database of `cargo xtask dev`, which must be running in this checkout
    #[arg(long, global = true)]
    dev: bool,
}

/// The arguments of an operator command with subcommands.
#[derive(clap::Args)]
pub struct DatabaseArgs<C: clap::Subcommand> {
    #[command(subcommand)]
    pub command: C,
    #[command(flatten)]
    pub database: Database,
}

impl Database {
    pub fn url(self) -> Result<Secret> {
        // clap reports the conflict only if both options are on the same side of a subcommand.
        ensure!(!self.dev || self.database_url.is_none(), "--dev cannot be used with --database-url");
        if self.dev {
            return Ok(Secret::new(Cluster::dev_url("postgres")?));
        }
        if let Some(url) = self.database_url {
            return Ok(Secret::new(url));
        }
        let url = read_setting::<settings::Secret>("SVC_DATABASE_URL")?;
        let url = url.context("no database: pass --database-url or --dev, or set SVC_DATABASE_URL")?;
        Ok(Secret::new(url.reveal().to_owned()))
    }

    /// Returns the sealing keys of the server. With `--dev`, returns those of `cargo xtask dev`.
    pub fn keys(&self) -> Result<Keys> {
        let setting = read_setting::<settings::Secret>("SVC_SEALING_KEYS")?;
        let text = match setting {
            Some(setting) => setting.reveal().to_owned(),
            None if self.dev => {
                let file = workspace::root()?.join(".svc/dev/sealing.keys");
                fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?.trim().to_owned()
            }
            None => bail!("no keys: set SVC_SEALING_KEYS or SVC_SEALING_KEYS_FILE as for the server"),
        };
        Keys::parse(&text).context("SVC_SEALING_KEYS is malformed")
    }

    pub async fn store(self) -> Result<Store> {
        self.store_with(Keys::default()).await
    }

    /// Opens a store that can seal and unseal values.
    pub async fn store_with(self, keys: Keys) -> Result<Store> {
        let config = Config { keys, ..Config::new(self.url()?, "xtask") };
        let store = Store::new(&config, ClockRng::system())?;
        check_clock(&store).await?;
        Ok(store)
    }
}

/// Fails if the clock of the store differs too much from that of Postgres. Commands write times on which servers act.
async fn check_clock(store: &Store) -> Result<()> {
    let before = store.clock_rng().now().unix_seconds();
    let postgres = store.postgres_time().await?.unix_seconds();
    let after = store.clock_rng().now().unix_seconds();
    // Postgres read its clock between the two times.
    let lead = (before - postgres).max(0) + (after - postgres).min(0);
    let direction = if lead > 0 { "ahead of" } else { "behind" };
    ensure!(
        lead.abs() <= MAX_CLOCK_DIFFERENCE_SECONDS,
        "the clock of this machine is {} s {direction} that of Postgres: correct it, then run the command again",
        lead.abs()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use testkit::{TestClock, TestDatabase};

    use super::*;

    #[tokio::test]
    async fn wrong_clock_is_refused() {
        let (database, clock) = (TestDatabase::create().await, TestClock::running());
        let store = Store::new(&Config::new(Secret::new(database.url()), "test"), clock.clock_rng()).unwrap();
        check_clock(&store).await.unwrap();
        for (advanced, direction) in [(3600, "s ahead of that of Postgres"), (-7200, "s behind that of Postgres")] {
            clock.advance(advanced);
            let error = check_clock(&store).await.unwrap_err().to_string();
            assert!(error.contains(direction), "{error}");
        }
        clock.advance(3600);
        check_clock(&store).await.unwrap();
    }

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        database: Database,
        #[command(subcommand)]
        _command: Subcommand,
    }

    #[derive(clap::Subcommand)]
    enum Subcommand {
        List,
    }

    fn parse(arguments: &[&str]) -> Result<Database> {
        Ok(Command::try_parse_from(arguments)?.database)
    }

    #[test]
    fn either_option_is_accepted_on_both_sides_of_a_subcommand() {
        for arguments in [["x", "--dev", "list"], ["x", "list", "--dev"]] {
            assert!(parse(&arguments).unwrap().dev, "{arguments:?}");
        }
        for arguments in
            [["x", "--database-url", "postgres://a", "list"], ["x", "list", "--database-url", "postgres://a"]]
        {
            assert_eq!(parse(&arguments).unwrap().url().unwrap().reveal(), "postgres://a", "{arguments:?}");
        }
    }

    #[test]
    fn both_options_are_a_conflict_on_either_side_of_a_subcommand() {
        for arguments in [
            ["x", "--dev", "--database-url", "postgres://a", "list"],
            ["x", "list", "--dev", "--database-url", "postgres://a"],
            ["x", "--dev", "list", "--database-url", "postgres://a"],
            ["x", "--database-url", "postgres://a", "list", "--dev"],
        ] {
            let error = parse(&arguments).and_then(Database::url).err().unwrap().to_string();
            assert!(error.contains("cannot be used with"), "{arguments:?}: {error}");
        }
    }
}
