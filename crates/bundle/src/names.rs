//! Which names a bundle has had so far, and whether the next one gets along with them.
//!
//! The rule is that the bundle could be laid out on a file system that ignores case, whether or not the archive spells
//! its directories out. So `assets/A/x` beside `assets/a/y` is refused as `assets/A` beside `assets/a` is.
//!
//! What is kept of a name, and of each directory above it, is a hash, so memory grows with their number and not with
//! their length. The hashes' key is drawn for every bundle: nobody can prepare names that collide, and that two of a
//! hundred thousand do so by chance happens to one bundle in four thousand million.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};

use crate::Reason;
use crate::header::Kind;

#[derive(Default)]
pub(crate) struct Names {
    key: RandomState,
    /// By the hash of the folded path.
    seen: BTreeMap<u64, Seen>,
    implied: u64,
}

struct Seen {
    /// The hash of the path as it is spelled.
    spelling: u64,
    /// None for a directory that other names imply, and that has not come itself.
    kind: Option<Kind>,
}

impl Names {
    pub(crate) fn insert(&mut self, path: &str, kind: Kind) -> Result<(), Reason> {
        let mut prefixes = Prefixes::new(&self.key, path);
        while let Some((folded, spelling)) = prefixes.next() {
            let ours = prefixes.is_whole().then_some(kind);
            match self.seen.entry(folded) {
                Entry::Vacant(place) => {
                    place.insert(Seen { spelling, kind: ours });
                    self.implied += u64::from(ours.is_none());
                }
                Entry::Occupied(mut seen) => {
                    let seen = seen.get_mut();
                    seen.kind = match (seen.kind, ours) {
                        _ if seen.spelling != spelling => return Err(Reason::CaseCollision),
                        (Some(Kind::Directory) | None, None) => seen.kind,
                        (None, Some(Kind::Directory)) => ours,
                        (theirs, ours) if theirs == ours => return Err(Reason::Duplicate),
                        _ => return Err(Reason::FileAndDirectory),
                    };
                }
            }
        }
        Ok(())
    }

    /// How many directories were first met in the name of something else.
    pub(crate) fn implied(&self) -> u64 {
        self.implied
    }

    /// Whether there is a file of exactly this path.
    pub(crate) fn has_file(&self, path: &str) -> bool {
        let Some((folded, spelling)) = Prefixes::new(&self.key, path).last() else { return false };
        self.seen.get(&folded).is_some_and(|seen| seen.spelling == spelling && seen.kind == Some(Kind::File))
    }
}

/// The hashes of a path's first segment, its first two, and so on to the whole: as folded, and as spelled.
struct Prefixes<'a> {
    rest: Option<&'a str>,
    folded: DefaultHasher,
    spelled: DefaultHasher,
    segment: String,
}

impl<'a> Prefixes<'a> {
    fn new(key: &RandomState, path: &'a str) -> Self {
        Self { rest: Some(path), folded: key.build_hasher(), spelled: key.build_hasher(), segment: String::new() }
    }

    /// Whether the last pair was the whole path's.
    fn is_whole(&self) -> bool {
        self.rest.is_none()
    }
}

impl Iterator for Prefixes<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let rest = self.rest?;
        let (segment, rest) = rest.split_once('/').map_or((rest, None), |(segment, rest)| (segment, Some(rest)));
        self.rest = rest;
        self.segment.clear();
        fold(segment, &mut self.segment);
        for (hasher, segment) in [(&mut self.folded, self.segment.as_str()), (&mut self.spelled, segment)] {
            hasher.write(segment.as_bytes());
            hasher.write_u8(b'/');
        }
        Some((self.folded.finish(), self.spelled.finish()))
    }
}

/// Close to Unicode's full case folding, without its table: ß folds to ss, and all three sigmas to one.
fn fold(segment: &str, folded: &mut String) {
    for c in segment.chars() {
        if c.is_ascii() {
            folded.push(c.to_ascii_lowercase());
        } else {
            folded.extend(c.to_uppercase().flat_map(char::to_lowercase));
        }
    }
}
