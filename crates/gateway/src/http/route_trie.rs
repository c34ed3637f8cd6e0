//! The router's trie of path segments. The cost of a lookup depends on the length of the path, not on the number of
//! routes.

use std::collections::HashMap;
use std::rc::Rc;

use actix_web::{HttpMessage as _, HttpRequest};

use super::percent_decoded;

/// A trie of path patterns with `{parameters}`. A literal segment takes precedence over a parameter.
pub(crate) struct RouteTrie<T> {
    literals: HashMap<&'static str, Self>,
    parameter: Option<Box<Self>>,
    route: Option<(&'static str, T)>,
}

/// The route of a request.
#[derive(Debug)]
pub(crate) struct RouteMatch {
    /// The registered path pattern.
    pub(crate) pattern: &'static str,
    parameters: Vec<(&'static str, String)>,
}

impl<T> Default for RouteTrie<T> {
    fn default() -> Self {
        Self { literals: HashMap::new(), parameter: None, route: None }
    }
}

impl<T: Default> RouteTrie<T> {
    /// Returns the value of a pattern, and adds the pattern if it is new.
    pub(crate) fn entry(&mut self, pattern: &'static str) -> &mut T {
        let end = pattern.split('/').fold(self, |at, segment| match parameter(segment) {
            Some(_) => at.parameter.get_or_insert_default(),
            None => at.literals.entry(segment).or_default(),
        });
        &mut end.route.get_or_insert_with(|| (pattern, T::default())).1
    }
}

impl<T> RouteTrie<T> {
    /// Finds the route of a path. The path is decoded except for `%2F`, `%2B` and `%25`, which actix keeps. They are decoded
    /// here, so that the value of a parameter can contain a slash, and each value is decoded exactly once.
    pub(crate) fn find(&self, path: &str) -> Option<(&T, RouteMatch)> {
        let mut values = Vec::new();
        let (pattern, found) = self.walk(Some(path), &mut values)?;
        let parameters = parameters(pattern).zip(values).map(|(name, value)| Some((name, percent_decoded(value)?)));
        Some((found, RouteMatch { pattern, parameters: parameters.collect::<Option<_>>()? }))
    }

    /// Finds the rest of a path below this node. `rest` has no leading slash, and is `None` at the end of the path.
    fn walk<'p>(&self, rest: Option<&'p str>, values: &mut Vec<&'p str>) -> Option<(&'static str, &T)> {
        let Some(rest) = rest else {
            return self.route.as_ref().map(|(pattern, found)| (*pattern, found));
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

impl RouteMatch {
    /// Returns the route of a request, if it matches one.
    pub(crate) fn of(request: &HttpRequest) -> Option<Rc<Self>> {
        request.extensions().get::<Rc<Self>>().cloned()
    }

    /// Returns a parameter's value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the values of all parameters, in the path's order.
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.parameters.iter().map(|(_, value)| value.as_str())
    }
}

/// Returns the names of a pattern's parameters, in its order.
pub(super) fn parameters(pattern: &'static str) -> impl Iterator<Item = &'static str> {
    pattern.split('/').filter_map(parameter)
}

/// Returns the pattern without the names of its parameters. Patterns with the same result share a node of the trie.
pub(super) fn shape(pattern: &'static str) -> String {
    let segments: Vec<&str> = pattern.split('/').map(|segment| parameter(segment).map_or(segment, |_| "{}")).collect();
    segments.join("/")
}

/// Returns the name of a parameter segment. Returns `None` for a literal segment.
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
        let mut trie = RouteTrie::<()>::default();
        for pattern in PATTERNS {
            trie.entry(pattern);
        }
        trie.find(path).map(|((), matched)| (matched.pattern, matched.values().map(str::to_owned).collect()))
    }

    #[test]
    fn path_matches_its_pattern() {
        assert_eq!(found("/v1/orgs"), Some((PATTERNS[0], vec![])));
        assert_eq!(found("/v1/orgs/mine"), Some((PATTERNS[1], vec!["mine".to_owned()])));
        assert_eq!(found("/v1/orgs/o/members/u"), Some((PATTERNS[2], vec!["o".to_owned(), "u".to_owned()])));
        assert_eq!(found("/v1/orgs/mine/members/last"), Some((PATTERNS[3], vec!["members".to_owned()])));
        for (path, value) in [("/%2F", "/"), ("/a%2bb%25", "a+b%"), ("/%252F", "%2F"), ("/a+b", "a+b")] {
            assert_eq!(found(path), Some((PATTERNS[4], vec![value.to_owned()])), "{path}");
        }
    }

    #[test]
    fn literal_without_a_match_falls_back_to_the_parameter() {
        assert_eq!(found("/v1/orgs/mine/members/u"), Some((PATTERNS[2], vec!["mine".to_owned(), "u".to_owned()])));
    }

    #[test]
    fn unknown_paths_match_no_pattern() {
        for path in [
            "",
            "/",
            "v1/orgs",
            "/v1/orgs/",
            "/v1//orgs",
            "/v1/orgs/o/members/",
            "/a//c",
            "/a/b",
            "/v1/orgs/o/members",
            "/%",
        ] {
            assert_eq!(found(path), None, "{path}");
        }
    }
}
