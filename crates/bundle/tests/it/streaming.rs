//! Whose fault it is when something stops half-way, and what the visitor may do.

use std::io::{self, ErrorKind, Read};

use bundle::{Fault, Reason};

use crate::build::{PLENTY, Tar, accepted, collect, gzip};

/// Gives one byte at a time, is interrupted before every one, and fails once at the end if it has a failure.
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
fn a_slow_input_is_as_good_as_a_fast_one() {
    let bundle = Tar::valid().file("assets/a", [7; 3000]).gzip();
    assert_eq!(collect(Trickle::new(&bundle, None), &PLENTY).unwrap(), accepted(&bundle));
}

#[test]
fn an_input_that_fails_is_told_from_one_that_ends() {
    let bundle = Tar::valid().file("assets/a", [7; 3000]).gzip();
    for kind in [ErrorKind::UnexpectedEof, ErrorKind::WouldBlock, ErrorKind::InvalidInput, ErrorKind::ConnectionReset] {
        // The last of them fails after a whole bundle: nobody said that it is whole.
        for length in 0..=bundle.len() {
            match collect(Trickle::new(&bundle[..length], Some(kind)), &PLENTY) {
                Err(Fault::Io(error)) => assert_eq!(error.kind(), kind),
                other => panic!("after {length} bytes: {other:?}"),
            }
        }
    }
    for length in 0..bundle.len() {
        let fault = collect(Trickle::new(&bundle[..length], None), &PLENTY).unwrap_err();
        assert!(matches!(fault, Fault::Invalid { reason: Reason::Truncated, .. }), "after {length} bytes: {fault:?}");
    }
}

#[test]
fn a_visitor_that_fails_is_told_from_both() {
    let mut visited = 0;
    let fault = bundle::read(&*Tar::valid().gzip(), &PLENTY, |_| {
        visited += 1;
        Err(ErrorKind::StorageFull.into())
    });
    assert!(matches!(fault, Err(Fault::Visit(error)) if error.kind() == ErrorKind::StorageFull));
    assert_eq!(visited, 1);
}

#[test]
fn a_visitor_cannot_hide_a_fault() {
    let tar = Tar::valid().file("assets/a", [7; 3000]);
    let cut = gzip(&tar.0[..tar.0.len() - 2048]);
    let mut kinds = Vec::new();
    let fault = bundle::read(&*cut, &PLENTY, |file| {
        for _ in 0..2 {
            kinds.extend(io::copy(file.content, &mut io::sink()).err().map(|error| error.kind()));
        }
        Ok(())
    });
    assert_eq!(kinds, [ErrorKind::InvalidData; 2]);
    match fault {
        Err(Fault::Invalid { reason: Reason::Truncated, entry }) => assert_eq!(entry.as_deref(), Some("assets/a")),
        other => panic!("{other:?}"),
    }

    // Nor make another one of it, by trying again where the input would now say that it is at its end.
    let noise: Vec<u8> = (0..3000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bundle = Tar::valid().file("assets/a", noise).gzip();
    let mut input = Trickle::new(&bundle[..bundle.len() / 2], Some(ErrorKind::ConnectionReset));
    let fault = bundle::read(&mut input, &PLENTY, |file| {
        let first = io::copy(file.content, &mut io::sink());
        let _ = io::copy(file.content, &mut io::sink());
        first.map(drop).map_err(|_| ErrorKind::StorageFull.into())
    });
    assert!(matches!(fault, Err(Fault::Io(error)) if error.kind() == ErrorKind::ConnectionReset));
}

#[test]
fn what_a_visitor_leaves_is_skipped() {
    let bundle = Tar::valid().file("assets/a", [7; 70_000]).file("assets/b", "b").gzip();
    for taken in [0, 1, 511, 512, 513, 69_999, 70_000] {
        let mut paths = Vec::new();
        let contents = bundle::read(&*bundle, &PLENTY, |file| {
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
fn nothing_is_read_after_a_fault() {
    let bundle = Tar::valid().entry(b"assets/link", b'2', b"").gzip();
    let mut input = bundle.chain(Trickle::new(b"", Some(ErrorKind::ConnectionReset)));
    let fault = collect(&mut input, &PLENTY);
    assert!(matches!(fault, Err(Fault::Invalid { reason: Reason::SymbolicLink, .. })));
}
