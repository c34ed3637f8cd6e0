//! Functions that read a bundle and expect a specific outcome.

use std::collections::BTreeMap;
use std::io::Read;

use bundle::{BundleError, Contents, Limit, Limits, MAX_FILE_NAMES_BYTES, Reason};

pub use testkit::bundle::tar::{Tar, gzip, header, malformed_header, record};

pub const LARGE_LIMITS: Limits =
    Limits { compressed: 1 << 24, unpacked: 1 << 24, entries: 1000, names: MAX_FILE_NAMES_BYTES };

/// Reads a bundle and returns its files, keyed by path.
pub fn collect(bundle: impl Read, limits: &Limits) -> Result<(Contents, BTreeMap<String, Vec<u8>>), BundleError> {
    let mut files = BTreeMap::new();
    let contents = bundle::read(bundle, limits, |file| {
        let mut content = Vec::new();
        file.content.read_to_end(&mut content)?;
        assert_eq!(content.len() as u64, file.size, "{}", file.path);
        assert_eq!(files.insert(file.path.to_owned(), content), None, "{} was visited twice", file.path);
        Ok(())
    })?;
    Ok((contents, files))
}

pub fn read_valid(bundle: &[u8]) -> (Contents, BTreeMap<String, Vec<u8>>) {
    collect(bundle, &LARGE_LIMITS).unwrap()
}

pub fn read_invalid(bundle: &[u8]) -> (Reason, Option<String>) {
    match collect(bundle, &LARGE_LIMITS) {
        Err(BundleError::Invalid { reason, entry }) => (reason, entry),
        other => panic!("expected an invalid bundle, got {other:?}"),
    }
}

/// Returns the limit that the bundle exceeds.
pub fn read_too_large(bundle: impl Read, limits: &Limits) -> (Limit, u64) {
    match collect(bundle, limits) {
        Err(BundleError::TooLarge { limit, max }) => (limit, max),
        other => panic!("expected a bundle that exceeds a limit, got {other:?}"),
    }
}
