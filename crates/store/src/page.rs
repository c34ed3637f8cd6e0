//! Pages of lists, as statements.

/// The page that `$paging` asks for of a select that is not ordered yet: newest first, by a key that no two rows share and
/// that an index serves.
#[macro_export]
macro_rules! newest_first {
    ($select:expr, $key:expr, $paging:expr) => {{
        let page = $select.order($key.desc()).limit($paging.fetch()).into_boxed();
        match $paging.after {
            Some(after) => page.filter($key.lt(after)),
            None => page,
        }
    }};
}
