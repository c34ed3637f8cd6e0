//! A setting of the product, as it is given to xtask.

use settings::{Claim, Error, Setting, Settings, Value};

/// What the environment, or the file under it, gives; for a secret also by its `_FILE`.
pub fn given<T: Value>(name: &'static str) -> Result<Option<T>, Error> {
    // Nothing is refused here: the programs know which names they answer for.
    const CLAIM: Claim = Claim { prefixes: &[], except: &[] };
    let setting = Setting::<Option<T>>::optional(name);
    Settings::from_env(&[setting.row()], &CLAIM)?.opt(&setting)
}
