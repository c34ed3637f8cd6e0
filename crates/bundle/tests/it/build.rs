//! Reading a bundle with the expected outcome.

use std::collections::BTreeMap;
use std::io::Read;

use bundle::{Contents, Fault, Limit, Limits, Reason};

pub use testkit::bundle::tar::{Tar, gzip, header, odd_header, record};

pub const PLENTY: Limits = Limits { compressed: 1 << 24, unpacked: 1 << 24, entries: 1000 };

/// Reads a bundle and returns its files by path.
pub fn collect(bundle: impl Read, limits: &Limits) -> Result<(Contents, BTreeMap<String, Vec<u8>>), Fault> {
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

pub fn accepted(bundle: &[u8]) -> (Contents, BTreeMap<String, Vec<u8>>) {
    collect(bundle, &PLENTY).unwrap()
}

pub fn refused(bundle: &[u8]) -> (Reason, Option<String>) {
    match collect(bundle, &PLENTY) {
        Err(Fault::Invalid { reason, entry }) => (reason, entry),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Which limit the bundle is over.
pub fn over(bundle: impl Read, limits: &Limits) -> (Limit, u64) {
    match collect(bundle, limits) {
        Err(Fault::TooLarge { limit, max }) => (limit, max),
        other => panic!("expected a bundle over a limit, got {other:?}"),
    }
}
