//! The path of a repository in URLs and SSH commands: `/<org>/<project>/<repo>.git`.

/// The names in a path. They need no decoding, because names contain no characters that URLs encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepositoryPath<'a> {
    pub org: &'a str,
    pub project: &'a str,
    pub repository: &'a str,
}

impl<'a> RepositoryPath<'a> {
    /// Parses a path. The suffix `.git` is optional.
    pub fn parse(path: &'a str) -> Option<Self> {
        let mut names = path.strip_prefix('/').unwrap_or(path).split('/');
        let (org, project, repository) = (names.next()?, names.next()?, names.next()?);
        let repository = repository.strip_suffix(".git").unwrap_or(repository);
        let is_valid = [org, project, repository].iter().all(|name| is_name(name)) && names.next().is_none();
        is_valid.then_some(Self { org, project, repository })
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    name.len() <= 64 && name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_plain_names_are_a_path() {
        let expected = Some(RepositoryPath { org: "ada", project: "site", repository: "app" });
        for path in ["/ada/site/app.git", "/ada/site/app", "ada/site/app.git"] {
            assert_eq!(RepositoryPath::parse(path), expected, "{path}");
        }
        for path in [
            "/ada/site",
            "/ada/site/app.git/x",
            "//ada/site/app",
            "/ada/../app",
            "/ada/site/..",
            "/ada/site/.git",
            "/ada/site/a%2fb",
            "/ada/site/a b",
            "/ada/site/-u",
            "/ada/site/--upload-pack=x",
            "/ada/site/app.git/",
            "/ada/site/a\0b",
            "/Ada/site/app",
            "~ada/site/app",
            "",
        ] {
            assert_eq!(RepositoryPath::parse(path), None, "{path:?}");
        }
    }
}
