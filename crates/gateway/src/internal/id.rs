//! Ids in the requests of nodes.

use std::str::FromStr;

use kernel::InvalidId;

use crate::problem::Problem;

/// Parses the id in a field of a request.
///
/// # Errors
/// Returns 400 with the name of the field.
pub(super) fn parse_id<T: FromStr<Err = InvalidId>>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format!("{field} {error}")))
}
