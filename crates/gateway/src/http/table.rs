//! Which route a path leads to: a tree of segments. What a look-up costs depends on the path's length alone, and not on how
//! many routes there are.

use std::collections::HashMap;
use std::rc::Rc;

use actix_web::{HttpMessage as _, HttpRequest};

/// Paths with `{parameters}`, and what each leads to. A literal segment comes before a parameter at the same place.
pub(crate) struct Table<T> {
    literals: HashMap<&'static str, Self>,
    parameter: Option<Box<Self>>,
    leads_to: Option<(&'static str, T)>,
}

/// The route that a request was found to be for.
#[derive(Debug)]
pub(crate) struct Matched {
    /// The path as it was registered.
    pub(crate) pattern: &'static str,
    parameters: Vec<(&'static str, String)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { literals: HashMap::new(), parameter: None, leads_to: None }
    }
}

impl<T: Default> Table<T> {
    /// What a registered path leads to, new unless it is there.
    pub(crate) fn entry(&mut self, pattern: &'static str) -> &mut T {
        let end = pattern.split('/').fold(self, |at, segment| match parameter(segment) {
            Some(_) => at.parameter.get_or_insert_default(),
            None => at.literals.entry(segment).or_default(),
        });
        &mut end.leads_to.get_or_insert_with(|| (pattern, T::default())).1
    }
}

impl<T> Table<T> {
    /// What a path leads to.
    pub(crate) fn find(&self, path: &str) -> Option<(&T, Matched)> {
        let mut values = Vec::new();
        let (pattern, found) = self.walk(Some(path), &mut values)?;
        let parameters = parameters(pattern).zip(values).map(|(name, value)| (name, value.to_owned())).collect();
        Some((found, Matched { pattern, parameters }))
    }

    /// `rest` is what is left of the path, without the slash before it; none at its end.
    fn walk<'p>(&self, rest: Option<&'p str>, values: &mut Vec<&'p str>) -> Option<(&'static str, &T)> {
        let Some(rest) = rest else {
            return self.leads_to.as_ref().map(|(pattern, found)| (*pattern, found));
        };
        let (segment, rest) = rest.split_once('/').map_or((rest, None), |(segment, rest)| (segment, Some(rest)));
        if let Some(found) = self.literals.get(segment).and_then(|next| next.walk(rest, values)) {
            return Some(found);
        }
        let next = self.parameter.as_ref().filter(|_| !segment.is_empty())?;
        values.push(segment);
        let found = next.walk(rest, values);
        if found.is_none() {
            values.pop();
        }
        found
    }
}

impl Matched {
    /// The route of a request, unless it is for none.
    pub(crate) fn of(request: &HttpRequest) -> Option<Rc<Self>> {
        request.extensions().get::<Rc<Self>>().cloned()
    }

    /// A parameter's value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The values of all, in the path's order.
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.parameters.iter().map(|(_, value)| value.as_str())
    }
}

/// The names of the parameters of a registered path, in its order.
pub(super) fn parameters(pattern: &'static str) -> impl Iterator<Item = &'static str> {
    pattern.split('/').filter_map(parameter)
}

/// The name of a segment that is a parameter.
fn parameter(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERNS: [&str; 6] = [
        "/v1/orgs",
        "/v1/orgs/{org}",
        "/v1/orgs/{org}/members/{user}",
        "/v1/orgs/mine/{what}/last",
        "/{file}",
        "/a/{b}/c",
    ];

    fn found(path: &str) -> Option<(&'static str, Vec<String>)> {
        let mut table = Table::<()>::default();
        for pattern in PATTERNS {
            table.entry(pattern);
        }
        table.find(path).map(|((), matched)| (matched.pattern, matched.values().map(str::to_owned).collect()))
    }

    #[test]
    fn a_path_leads_to_its_pattern() {
        assert_eq!(found("/v1/orgs"), Some((PATTERNS[0], vec![])));
        assert_eq!(found("/v1/orgs/mine"), Some((PATTERNS[1], vec!["mine".to_owned()])));
        assert_eq!(found("/v1/orgs/o/members/u"), Some((PATTERNS[2], vec!["o".to_owned(), "u".to_owned()])));
        assert_eq!(found("/v1/orgs/mine/members/last"), Some((PATTERNS[3], vec!["members".to_owned()])));
        assert_eq!(found("/%2F"), Some((PATTERNS[4], vec!["%2F".to_owned()])));
    }

    #[test]
    fn a_literal_that_leads_nowhere_is_taken_for_a_parameter() {
        assert_eq!(found("/v1/orgs/mine/members/u"), Some((PATTERNS[2], vec!["mine".to_owned(), "u".to_owned()])));
    }

    #[test]
    fn what_is_not_a_path_of_the_table_leads_nowhere() {
        for path in
            ["", "/", "v1/orgs", "/v1/orgs/", "/v1//orgs", "/v1/orgs/o/members/", "/a//c", "/a/b", "/v1/orgs/o/members"]
        {
            assert_eq!(found(path), None, "{path}");
        }
    }
}
