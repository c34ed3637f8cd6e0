//! Interrupted input, and the behavior of visitors.

use std::io::{self, ErrorKind, Read};

use bundle::{BundleError, Reason};

use crate::support::{LARGE_LIMITS, Tar, collect, gzip, read_valid};

/// An input that returns one byte per read, fails with `Interrupted` before each read, and fails once at the end if it
/// has a failure.
struct Trickle<'a> {
    bytes: &'a [u8],
    interrupted: bool,
    failure: Option<ErrorKind>,
}

impl<'a> Trickle<'a> {
    fn new(bytes: &'a [u8], failure: Option<ErrorKind>) -> Self {
        Self { bytes, interrupted: false, failure }
    }
}

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(ErrorKind::Interrupted.into());
        }
        match self.failure.take_if(|_| self.bytes.is_empty()) {
            Some(kind) => Err(kind.into()),
            None => self.bytes.read(&mut buffer[..1]),
        }
    }
}

#[test]
fn slow_input_reads_the_same() {
    let bundle = Tar::valid().file("assets/a", [7; 3000]).gzip();
    assert_eq!(collect(Trickle::new(&bundle, None), &LARGE_LIMITS).unwrap(), read_valid(&bundle));
}

#[test]
fn failed_input_differs_from_truncated_input() {
    let bundle = Tar::valid().file("assets/a", [7; 3000]).gzip();
    for kind in [ErrorKind::UnexpectedEof, ErrorKind::WouldBlock, ErrorKind::InvalidInput, ErrorKind::ConnectionReset] {
        // The last iteration fails after a whole bundle, which the reader cannot know to be complete.
        for length in 0..=bundle.len() {
            match collect(Trickle::new(&bundle[..length], Some(kind)), &LARGE_LIMITS) {
                Err(BundleError::Io(error)) => assert_eq!(error.kind(), kind),
                other => panic!("after {length} bytes: {other:?}"),
            }
        }
    }
    for length in 0..bundle.len() {
        let error = collect(Trickle::new(&bundle[..length], None), &LARGE_LIMITS).unwrap_err();
        assert!(
            matches!(error, BundleError::Invalid { reason: Reason::Truncated, .. }),
            "after {length} bytes: {error:?}"
        );
    }
}

#[test]
fn visitor_error_is_returned() {
    let mut visited = 0;
    let error = bundle::read(&*Tar::valid().gzip(), &LARGE_LIMITS, |_| {
        visited += 1;
        Err(ErrorKind::StorageFull.into())
    });
    assert!(matches!(error, Err(BundleError::Visit(error)) if error.kind() == ErrorKind::StorageFull));
    assert_eq!(visited, 1);
}

#[test]
fn visitor_cannot_hide_a_read_error() {
    let tar = Tar::valid().file("assets/a", [7; 3000]);
    let cut = gzip(&tar.0[..tar.0.len() - 2048]);
    let mut kinds = Vec::new();
    let error = bundle::read(&*cut, &LARGE_LIMITS, |file| {
        for _ in 0..2 {
            kinds.extend(io::copy(file.content, &mut io::sink()).err().map(|error| error.kind()));
        }
        Ok(())
    });
    assert_eq!(kinds, [ErrorKind::InvalidData; 2]);
    match error {
        Err(BundleError::Invalid { reason: Reason::Truncated, entry }) => {
            assert_eq!(entry.as_deref(), Some("assets/a"))
        }
        other => panic!("{other:?}"),
    }

    // A visitor that reads again after an error sees the end of the input, but still cannot replace the error.
    let noise: Vec<u8> = (0..3000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bundle = Tar::valid().file("assets/a", noise).gzip();
    let mut input = Trickle::new(&bundle[..bundle.len() / 2], Some(ErrorKind::ConnectionReset));
    let error = bundle::read(&mut input, &LARGE_LIMITS, |file| {
        let first = io::copy(file.content, &mut io::sink());
        let _ = io::copy(file.content, &mut io::sink());
        first.map(drop).map_err(|_| ErrorKind::StorageFull.into())
    });
    assert!(matches!(error, Err(BundleError::Io(error)) if error.kind() == ErrorKind::ConnectionReset));
}

#[test]
fn unread_content_is_skipped() {
    let bundle = Tar::valid().file("assets/a", [7; 70_000]).file("assets/b", "b").gzip();
    for taken in [0, 1, 511, 512, 513, 69_999, 70_000] {
        let mut paths = Vec::new();
        let contents = bundle::read(&*bundle, &LARGE_LIMITS, |file| {
            assert_eq!(file.content.read(&mut [])?, 0);
            let mut start = Vec::new();
            file.content.take(taken).read_to_end(&mut start)?;
            assert_eq!(start.len() as u64, taken.min(file.size));
            paths.push(file.path.to_owned());
            Ok(())
        });
        assert_eq!(contents.unwrap().asset_count, 2);
        assert_eq!(paths, ["svc.json", "worker/index.js", "assets/a", "assets/b"]);
    }
}

#[test]
fn reading_stops_at_the_first_error() {
    let bundle = Tar::valid().entry(b"assets/link", b'2', b"").gzip();
    let mut input = bundle.chain(Trickle::new(b"", Some(ErrorKind::ConnectionReset)));
    let error = collect(&mut input, &LARGE_LIMITS);
    assert!(matches!(error, Err(BundleError::Invalid { reason: Reason::SymbolicLink, .. })));
}
