//! Keyset pages: every list of the API.
//!
//! A cursor holds the key of the last item shown, never an offset, so a deep page costs what the first one costs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One page of a list (contract section 1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// What to send as `cursor` for the page after this one; null on the last page.
    pub next_cursor: Option<String>,
}

/// Which page is wanted. `K` is the key by which the list is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging<K> {
    /// The most items to answer: 1 to [`Paging::MOST`].
    pub limit: u16,
    /// The key after which the page begins; none for the first page.
    pub after: Option<K>,
}

/// A cursor that this list did not hand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the nextCursor of an earlier page of this list")]
pub struct InvalidCursor;

impl<K> Paging<K> {
    /// Items on a page when nothing is asked for.
    pub const DEFAULT: u16 = 50;
    /// The most items on a page; a larger limit is cut to it.
    pub const MOST: u16 = 200;

    /// Rows to fetch: one more than is shown, which tells whether there is a further page.
    #[must_use]
    pub fn fetch(&self) -> i64 {
        i64::from(self.limit) + 1
    }
}

impl<K> Default for Paging<K> {
    fn default() -> Self {
        Self { limit: Self::DEFAULT, after: None }
    }
}

impl<K: DeserializeOwned> Paging<K> {
    /// The page after `cursor`.
    ///
    /// # Errors
    /// When the cursor is not one that [`Page::cut`] wrote for a list ordered by `K`.
    pub fn after(limit: u16, cursor: &str) -> Result<Self, InvalidCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| InvalidCursor)?;
        let key = serde_json::from_slice(&bytes).map_err(|_| InvalidCursor)?;
        Ok(Self { limit, after: Some(key) })
    }
}

impl<T> Page<T> {
    /// The page made of up to [`Paging::fetch`] items, whose keys `key` tells.
    pub fn cut<K: Serialize>(mut items: Vec<T>, paging: &Paging<K>, key: impl FnOnce(&T) -> K) -> Self {
        let limit = usize::from(paging.limit);
        let more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| more).map(key);
        let next_cursor = last.and_then(|key| serde_json::to_vec(&key).ok()).map(|key| URL_SAFE_NO_PAD.encode(key));
        Self { items, next_cursor }
    }
}

/// Written by hand so that each page has a name of its own, such as `MemberPage`.
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
            let cursor = ObjectBuilder::new().schema_type(cursor).description(Some("What to send as `cursor` next"));
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

    /// What a list ordered by the number itself answers.
    fn list(all: &[u32], paging: &Paging<u32>) -> Page<u32> {
        let rows = all.iter().copied().filter(|n| paging.after.is_none_or(|after| *n > after));
        Page::cut(rows.take(paging.fetch() as usize).collect(), paging, |n| *n)
    }

    proptest! {
        #[test]
        fn following_the_cursors_shows_every_item_once(all: std::collections::BTreeSet<u32>, limit in 1u16..=200) {
            let all: Vec<u32> = all.into_iter().collect();
            let mut seen = Vec::new();
            let mut paging = Paging { limit, after: None };
            loop {
                let page = list(&all, &paging);
                prop_assert!(page.items.len() <= usize::from(limit));
                seen.extend(page.items);
                let Some(cursor) = page.next_cursor else { break };
                paging = Paging::after(limit, &cursor).expect("our own cursor");
            }
            prop_assert_eq!(seen, all);
        }

        #[test]
        fn any_text_is_a_cursor_or_refused(text: String) {
            let _ = Paging::<u32>::after(50, &text);
            let _ = Paging::<(String, crate::UserId)>::after(50, &text);
        }
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        let page = Page::cut(vec!["a", "b"], &Paging { limit: 1, after: None }, |item| (*item).to_owned());
        let cursor = page.next_cursor.expect("a second page");
        assert_eq!(Paging::<u32>::after(1, &cursor), Err(InvalidCursor));
        assert_eq!(Paging::<String>::after(1, &cursor).expect("a cursor").after.as_deref(), Some("a"));
    }
}
