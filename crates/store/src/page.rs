//! Queries for pages of listings.

/// Returns the tenant of a listing as a set with one element, for `= ANY`. Order the listing by the tenant first, like
/// its index: `filter(org_id.eq_any(any_of(org))).order((org_id, id))`.
///
/// With `=`, Postgres would treat the tenant as a constant, and any index on `id` would give the order as well.
/// Postgres prefers that index for a tenant with many rows, because it assumes that the tenant's rows are evenly
/// distributed. At the end of the listing, it would then read all newer rows of other tenants.
pub const fn any_of<T>(tenant: T) -> [T; 1] {
    [tenant]
}

/// Selects the page `$paging` of an unordered query: the rows of one tenant, newest first, by a unique key. The query
/// needs an index on tenant and key.
#[macro_export]
macro_rules! newest_first {
    ($select:expr, $tenant:path = $value:expr, $key:expr, $paging:expr) => {{
        let rows = $select.filter($tenant.eq_any($crate::any_of($value)));
        let page = rows.order(($tenant.desc(), $key.desc())).limit($paging.fetch()).into_boxed();
        match $paging.after {
            Some(after) => page.filter($key.lt(after)),
            None => page,
        }
    }};
}
