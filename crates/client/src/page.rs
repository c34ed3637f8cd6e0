//! Lists.

use serde::Deserialize;

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next part begins; none at the end.
    pub next_cursor: Option<String>,
}

/// Which part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paging {
    /// The most items; the API has a limit of its own.
    pub limit: Option<i64>,
    /// The `next_cursor` of the part before.
    pub cursor: Option<String>,
}
