//! Queries for pages of listings.

/// The tenant of a listing, as the set for `= ANY`. The listing is then ordered by the tenant first, as its index is:
/// `filter(org_id.eq_any(any_of(org))).order((org_id, id))`.
///
/// With `=`, the tenant would be a constant, and any index on `id` would give the order as well. For a tenant with many
/// rows Postgres prefers that index, because it assumes that the tenant's rows are evenly distributed. At the end of
/// the listing it then reads all newer rows of other tenants.
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
