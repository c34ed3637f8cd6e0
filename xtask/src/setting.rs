//! A setting of the product, as it is given to xtask.

use anyhow::{Context as _, Result};
use kernel::Secret;
use settings::{Claim, Error, Setting, Settings, Value};

/// What the environment, or the file under it, gives; for a secret also by its `_FILE`.
pub fn given<T: Value>(name: &'static str) -> std::result::Result<Option<T>, Error> {
    // Nothing is refused here: the programs know which names they answer for.
    const CLAIM: Claim = Claim { prefixes: &[], except: &[] };
    let setting = Setting::<Option<T>>::optional(name);
    Settings::from_env(&[setting.row()], &CLAIM)?.opt(&setting)
}

/// The database that an operator's command is about.
pub fn database_url(passed: Option<String>) -> Result<Secret> {
    if let Some(url) = passed {
        return Ok(Secret::new(url));
    }
    let url = given::<settings::Secret>("SVC_DATABASE_URL")?;
    let url = url.context("which database? Pass --database-url or set SVC_DATABASE_URL")?;
    Ok(Secret::new(url.reveal().to_owned()))
}
