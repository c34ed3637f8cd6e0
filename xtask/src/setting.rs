//! A setting of the product, as it is given to xtask.

use anyhow::{Context as _, Result};
use kernel::{Secret, World};
use settings::{Claim, Error, Setting, Settings, Value};
use store::{Config, Store};

/// What the environment, or the file under it, gives; for a secret also by its `_FILE`.
pub fn given<T: Value>(name: &'static str) -> std::result::Result<Option<T>, Error> {
    // Nothing is refused here: the programs know which names they answer for.
    const CLAIM: Claim = Claim { prefixes: &[], except: &[] };
    let setting = Setting::<Option<T>>::optional(name);
    Settings::from_env(&[setting.row()], &CLAIM)?.opt(&setting)
}

/// The database that an operator's command is about.
#[derive(clap::Args)]
pub struct Database {
    /// The database [default: SVC_DATABASE_URL, or what the file SVC_DATABASE_URL_FILE holds]
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
}

impl Database {
    pub fn url(self) -> Result<Secret> {
        if let Some(url) = self.database_url {
            return Ok(Secret::new(url));
        }
        let url = given::<settings::Secret>("SVC_DATABASE_URL")?;
        let url = url.context("which database? Pass --database-url or set SVC_DATABASE_URL")?;
        Ok(Secret::new(url.reveal().to_owned()))
    }

    pub fn store(self) -> Result<Store> {
        Ok(Store::new(&Config::new(self.url()?, "xtask"), World::system())?)
    }
}
