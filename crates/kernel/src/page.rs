//! Keyset pagination, which every list of the API uses.
//!
//! A cursor contains the key of the last item of a page and not an offset, so each page costs the same.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One page of a list (contract section 1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// The `cursor` of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

/// The requested page of a list that is ordered by the key `K`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging<K> {
    /// The maximum number of items, from 1 to [`Paging::MAX_LIMIT`].
    pub limit: u16,
    /// The key after which the page starts; `None` for the first page.
    pub after: Option<K>,
}

/// A cursor that does not belong to the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the nextCursor of an earlier page of this list")]
pub struct InvalidCursor;

impl<K> Paging<K> {
    /// The limit of a request without one.
    pub const DEFAULT_LIMIT: u16 = 50;
    /// The maximum limit. A greater value is reduced to it.
    pub const MAX_LIMIT: u16 = 200;

    /// Returns the number of rows to fetch: one more than the limit, to detect a next page.
    #[must_use]
    pub fn fetch(&self) -> i64 {
        i64::from(self.limit) + 1
    }
}

impl<K> Default for Paging<K> {
    fn default() -> Self {
        Self { limit: Self::DEFAULT_LIMIT, after: None }
    }
}

impl<K: DeserializeOwned> Paging<K> {
    /// Parses a cursor.
    ///
    /// # Errors
    /// Returns an error if the cursor does not contain a key of the type `K`. Also rejects U+0000, which [`Page::cut`]
    /// never puts into a cursor and Postgres does not accept.
    pub fn after(limit: u16, cursor: &str) -> Result<Self, InvalidCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| InvalidCursor)?;
        let key: Value = serde_json::from_slice(&bytes).map_err(|_| InvalidCursor)?;
        if contains_nul(&key) {
            return Err(InvalidCursor);
        }
        let key = serde_json::from_value(key).map_err(|_| InvalidCursor)?;
        Ok(Self { limit, after: Some(key) })
    }
}

/// Returns whether a string or a name in the JSON value contains U+0000.
fn contains_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(contains_nul),
        Value::Object(object) => object.iter().any(|(name, value)| name.contains('\0') || contains_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl<T> Page<T> {
    /// Builds the page from its items and the key after which the next page starts; `None` on the last page. A cursor is
    /// the JSON of its key; the conversion cannot fail.
    pub fn new<K: Into<Value>>(items: Vec<T>, next: Option<K>) -> Self {
        let next: Option<Value> = next.map(Into::into);
        Self { items, next_cursor: next.map(|key| URL_SAFE_NO_PAD.encode(key.to_string())) }
    }

    /// Builds the page from up to [`Paging::fetch`] items. `key` returns the key of an item.
    pub fn cut<K: Into<Value>>(mut items: Vec<T>, paging: &Paging<K>, key: impl FnOnce(&T) -> K) -> Self {
        let limit = usize::from(paging.limit);
        let more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| more).map(key);
        Self::new(items, last)
    }
}

/// Implemented by hand, so that each page has its own name, such as `MemberPage`.
#[cfg(feature = "openapi")]
mod schema {
    use std::borrow::Cow;

    use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, SchemaType, Type};
    use utoipa::openapi::{Ref, RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::Page;

    impl<T: ToSchema> PartialSchema for Page<T> {
        fn schema() -> RefOr<Schema> {
            let items = ArrayBuilder::new().items(Ref::from_schema_name(T::name()));
            let cursor = SchemaType::from_iter([Type::String, Type::Null]);
            let page = ObjectBuilder::new().property("items", items).required("items");
            let cursor = ObjectBuilder::new()
                .schema_type(cursor)
                .description(Some("the `cursor` of the next page; null on the last page"));
            page.property("nextCursor", cursor).required("nextCursor").into()
        }
    }

    impl<T: ToSchema> ToSchema for Page<T> {
        fn name() -> Cow<'static, str> {
            format!("{}Page", T::name()).into()
        }

        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            schemas.push((T::name().into_owned(), T::schema()));
            T::schemas(schemas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a listing of numbers, ordered by value.
    fn list(all: &[u32], paging: &Paging<u32>) -> Page<u32> {
        let rows = all.iter().copied().filter(|n| paging.after.is_none_or(|after| *n > after));
        Page::cut(rows.take(paging.fetch() as usize).collect(), paging, |n| *n)
    }

    proptest! {
        #[test]
        fn following_the_cursors_returns_every_item_once(all: std::collections::BTreeSet<u32>, limit in 1u16..=200) {
            let all: Vec<u32> = all.into_iter().collect();
            let mut seen = Vec::new();
            let mut paging = Paging { limit, after: None };
            loop {
                let page = list(&all, &paging);
                prop_assert!(page.items.len() <= usize::from(limit));
                seen.extend(page.items);
                let Some(cursor) = page.next_cursor else { break };
                paging = Paging::after(limit, &cursor).expect("a valid cursor");
            }
            prop_assert_eq!(seen, all);
        }

        #[test]
        fn parsing_a_cursor_never_panics(text: String) {
            let _ = Paging::<u32>::after(50, &text);
            let _ = Paging::<(String, crate::UserId)>::after(50, &text);
        }
    }

    #[test]
    fn cursor_with_nul_is_rejected() {
        let after = |json: &str| Paging::<(String, u32)>::after(1, &URL_SAFE_NO_PAD.encode(json));
        for json in [r#"["\u0000", 1]"#, r#"["a\u0000.example", 1]"#] {
            assert_eq!(after(json), Err(InvalidCursor), "{json}");
        }
        // A backslash in front of `u0000` is not an escape.
        let key = after(r#"["\\u0000", 1]"#).expect("a cursor").after;
        assert_eq!(key, Some((r"\u0000".to_owned(), 1)));
    }

    #[test]
    fn cursor_of_another_list_is_rejected() {
        let page = Page::cut(vec!["a", "b"], &Paging { limit: 1, after: None }, |item| (*item).to_owned());
        let cursor = page.next_cursor.expect("a second page");
        assert_eq!(Paging::<u32>::after(1, &cursor), Err(InvalidCursor));
        assert_eq!(Paging::<String>::after(1, &cursor).expect("a cursor").after.as_deref(), Some("a"));
    }
}
