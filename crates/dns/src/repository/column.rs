//! Conversions of column values.

use serde::Serialize;
use serde::de::DeserializeOwned;
use store::{Error, Result};

pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(Error::inconsistent)
}

pub(super) fn from_json<T: DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    serde_json::from_value(value).map_err(Error::inconsistent)
}

pub(super) fn serial(stored: i64) -> Result<u32> {
    stored.try_into().map_err(Error::inconsistent)
}
