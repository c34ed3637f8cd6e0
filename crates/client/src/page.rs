//! Pagination of listings.

use serde::Deserialize;

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The cursor of the next page. `None` on the last page.
    pub next_cursor: Option<String>,
}

/// The limit and the cursor of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paging {
    /// The maximum number of items. The API has its own maximum.
    pub limit: Option<i64>,
    /// The `next_cursor` of the previous page.
    pub cursor: Option<String>,
}
