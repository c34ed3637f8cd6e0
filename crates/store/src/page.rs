//! Pages of lists, as statements.

/// The owner whose rows a list shows, as the set that `= ANY` takes. With it the list is ordered by the owner first, as its
/// index is: `filter(org_id.eq_any(of(org))).order((org_id, id))`.
///
/// Said with `=`, the owner would be a constant, and any index on `id` would give the order as well: of an owner of many rows
/// Postgres takes that one, in the belief that theirs lie evenly among all others. At the end of the list it then reads those
/// of everybody who came later.
pub const fn of<T>(owner: T) -> [T; 1] {
    [owner]
}

/// The page that `$paging` asks for of a select that is not ordered yet: what belongs to one owner, newest first, by a key
/// that no two rows share, as an index on owner and key has it.
#[macro_export]
macro_rules! newest_first {
    ($select:expr, $owner:path = $whose:expr, $key:expr, $paging:expr) => {{
        let own = $select.filter($owner.eq_any($crate::of($whose)));
        let page = own.order(($owner.desc(), $key.desc())).limit($paging.fetch()).into_boxed();
        match $paging.after {
            Some(after) => page.filter($key.lt(after)),
            None => page,
        }
    }};
}
