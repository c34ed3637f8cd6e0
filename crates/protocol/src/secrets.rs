//! The part `secrets`: the values that worker code sees as `env.<NAME>`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::desired::DesiredPart;

/// The secrets of a project. The context `resources` owns this part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Secrets {
    /// Increases with every change of the project's secrets, including a deletion.
    pub revision: i64,
    /// The values by name (spec/runtime.md, `env.<NAME>`).
    pub values: BTreeMap<String, SecretValue>,
}

impl DesiredPart for Secrets {
    const NAME: &'static str = "secrets";
}

/// The value of a secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct SecretValue(String);

impl SecretValue {
    /// Wraps a value.
    #[must_use]
    pub const fn new(value: String) -> Self {
        Self(value)
    }

    /// Returns the value.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_values() {
        let values = BTreeMap::from([("API_KEY".to_owned(), SecretValue::new("hush".to_owned()))]);
        let secrets = Secrets { revision: 1, values };
        assert!(!format!("{secrets:?}").contains("hush"));
        assert_eq!(serde_json::to_value(&secrets).unwrap()["values"]["API_KEY"], "hush");
    }
}
