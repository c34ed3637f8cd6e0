//! Detects duplicate and conflicting names in a bundle.
//!
//! A bundle must fit on a case-insensitive file system, whether or not the archive has entries for its directories.
//! `assets/A/x` conflicts with `assets/a/y`, just as `assets/A` conflicts with `assets/a`.
//!
//! The index stores one hash per name and per parent directory, so memory depends on their number and not on their
//! length. The hash key is random per bundle, so that a sender cannot prepare collisions. With 100,000 names, a random
//! collision occurs in one of four billion bundles.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};

use crate::Reason;
use crate::header::EntryKind;

#[derive(Default)]
pub(crate) struct NameIndex {
    key: RandomState,
    /// Keyed by the hash of the case-folded path.
    seen: BTreeMap<u64, Seen>,
    implied_directories: u64,
}

struct Seen {
    /// The hash of the path in its original case.
    original: u64,
    /// None for a directory that occurs only as the parent of other names so far.
    kind: Option<EntryKind>,
}

impl NameIndex {
    pub(crate) fn insert(&mut self, path: &str, kind: EntryKind) -> Result<(), Reason> {
        let mut prefixes = Prefixes::new(&self.key, path);
        while let Some((folded, original)) = prefixes.next() {
            let new_kind = prefixes.is_whole().then_some(kind);
            match self.seen.entry(folded) {
                Entry::Vacant(slot) => {
                    slot.insert(Seen { original, kind: new_kind });
                    self.implied_directories += u64::from(new_kind.is_none());
                }
                Entry::Occupied(mut seen) => {
                    let seen = seen.get_mut();
                    seen.kind = match (seen.kind, new_kind) {
                        _ if seen.original != original => return Err(Reason::CaseCollision),
                        (Some(EntryKind::Directory) | None, None) => seen.kind,
                        (None, Some(EntryKind::Directory)) => new_kind,
                        (old_kind, new_kind) if old_kind == new_kind => return Err(Reason::Duplicate),
                        _ => return Err(Reason::FileAndDirectory),
                    };
                }
            }
        }
        Ok(())
    }

    /// Returns the number of directories that first occurred as the parent of another entry.
    pub(crate) fn implied_directories(&self) -> u64 {
        self.implied_directories
    }

    /// Returns whether the bundle contains a file with exactly this path.
    pub(crate) fn has_file(&self, path: &str) -> bool {
        let Some((folded, original)) = Prefixes::new(&self.key, path).last() else { return false };
        self.seen.get(&folded).is_some_and(|seen| seen.original == original && seen.kind == Some(EntryKind::File))
    }
}

/// Iterates over the hashes of a path's prefixes, from the first segment to the whole path. Each item is the hash of
/// the case-folded and of the original prefix.
struct Prefixes<'a> {
    rest: Option<&'a str>,
    folded: DefaultHasher,
    original: DefaultHasher,
    segment: String,
}

impl<'a> Prefixes<'a> {
    fn new(key: &RandomState, path: &'a str) -> Self {
        Self { rest: Some(path), folded: key.build_hasher(), original: key.build_hasher(), segment: String::new() }
    }

    /// Returns whether the last item covered the whole path.
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
        for (hasher, segment) in [(&mut self.folded, self.segment.as_str()), (&mut self.original, segment)] {
            hasher.write(segment.as_bytes());
            hasher.write_u8(b'/');
        }
        Some((self.folded.finish(), self.original.finish()))
    }
}

/// Approximates Unicode full case folding without its table: ß folds to ss, and all three sigmas to one.
fn fold(segment: &str, folded: &mut String) {
    for c in segment.chars() {
        if c.is_ascii() {
            folded.push(c.to_ascii_lowercase());
        } else {
            folded.extend(c.to_uppercase().flat_map(char::to_lowercase));
        }
    }
}
