//! Which names a bundle has had so far, and whether the next one gets along with them.
//!
//! The rule is that the bundle could be laid out on a file system that ignores case, whether or not the archive spells
//! its directories out. So `assets/A/x` beside `assets/a/y` is refused as `assets/A` beside `assets/a` is.
//!
//! Remembering every parent directory would take memory in the square of a name's length. Instead each name is kept
//! once as it is spelled and once folded, in the order in which a directory comes directly before all that it holds.
//! There the name that shares the most leading segments with a new one is its neighbour, and as all earlier names agree
//! with each other, only the two neighbours can disagree with the new one.

use std::collections::BTreeMap;

use crate::Reason;
use crate::header::Kind;

#[derive(Default)]
pub(crate) struct Names {
    /// The spelling, and whether it is a file or a directory, by [`key`].
    seen: BTreeMap<String, (String, Kind)>,
}

impl Names {
    pub(crate) fn insert(&mut self, path: &str, kind: Kind) -> Result<(), Reason> {
        let key = key(path);
        let name = Name { path, key: &key, kind };
        let before = self.seen.range::<String, _>(..=&key).next_back();
        let after = self.seen.range::<String, _>(&key..).next();
        for (key, (path, kind)) in before.into_iter().chain(after) {
            name.agree(Name { path, key, kind: *kind })?;
        }
        self.seen.insert(key, (path.to_owned(), kind));
        Ok(())
    }

    /// Whether there is a file of exactly this path.
    pub(crate) fn has_file(&self, path: &str) -> bool {
        let known = self.seen.get(&key(path));
        known.is_some_and(|(spelling, kind)| spelling == path && *kind == Kind::File)
    }
}

struct Name<'a> {
    path: &'a str,
    key: &'a str,
    kind: Kind,
}

impl<'a> Name<'a> {
    /// Each segment as it is spelled, and folded.
    fn segments(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.path.split('/').zip(self.key.split('\0'))
    }

    fn agree(&self, other: Name<'_>) -> Result<(), Reason> {
        let (mut ours, mut theirs) = (self.segments(), other.segments());
        loop {
            return match (ours.next(), theirs.next()) {
                (Some((a, _)), Some((b, _))) if a == b => continue,
                (Some((_, a)), Some((_, b))) if a == b => Err(Reason::CaseCollision),
                (None, None) if self.kind == other.kind => Err(Reason::Duplicate),
                (None, None) => Err(Reason::FileAndDirectory),
                (None, Some(_)) if self.kind == Kind::File => Err(Reason::FileAndDirectory),
                (Some(_), None) if other.kind == Kind::File => Err(Reason::FileAndDirectory),
                _ => Ok(()),
            };
        }
    }
}

/// The path with its case folded and U+0000 between the segments: that is in no path and sorts before everything, so
/// nothing comes between a directory and what it holds.
///
/// Close to Unicode's full case folding, without its table: ß folds to ss, and all three sigmas to one.
fn key(path: &str) -> String {
    let mut key = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '/' => key.push('\0'),
            c if c.is_ascii() => key.push(c.to_ascii_lowercase()),
            c => key.extend(c.to_uppercase().flat_map(char::to_lowercase)),
        }
    }
    key
}
