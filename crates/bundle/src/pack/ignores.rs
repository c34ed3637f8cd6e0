//! The ignore files of a directory and its parents, in the syntax of `.gitignore`.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// An ignore file, and those of the directories above.
pub(super) struct Ignores {
    patterns: Gitignore,
    directory: PathBuf,
    above: Option<Rc<Self>>,
}

impl Ignores {
    /// Parses the ignore file of a directory. Returns a message with the malformed line.
    pub(super) fn parse(text: &str, directory: PathBuf, above: Option<Rc<Self>>) -> Result<Self, String> {
        // Paths are made relative to the directory before they are matched.
        let mut builder = GitignoreBuilder::new("");
        // Like git, ignore the byte order mark.
        for (number, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            builder.add_line(None, line).map_err(|error| format!("line {}: {error}", number + 1))?;
        }
        let patterns = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { patterns, directory, above })
    }

    /// Returns whether an entry below the directory is excluded. The deepest ignore file with a matching pattern
    /// decides.
    pub(super) fn excludes(&self, path: &Path, is_directory: bool) -> bool {
        let mut ignores = Some(self);
        while let Some(Self { patterns, directory, above }) = ignores {
            let relative = path.strip_prefix(directory).unwrap_or(path);
            match patterns.matched(relative, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => ignores = above.as_deref(),
            }
        }
        false
    }
}
