//! The limits, and that a bundle over one of them is noticed early: counted in bytes read, not in time.

use std::io::{self, Read};

use bundle::{Fault, Limit, Limits, Reason};
use flate2::{Compress, Compression, FlushCompress};

use crate::build::{Tar, collect, gzip, header, over};

const SMALL: Limits = Limits { compressed: u64::MAX, unpacked: 1 << 20, entries: 10 };

/// What the reader may take beyond the place where it can tell: one fill of its buffer.
const READ_AHEAD: u64 = 32 * 1024;

/// Counts how much is taken from an input.
struct Counted<R>(R, u64);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1 += count as u64;
        Ok(count)
    }
}

/// A gzip member that begins with `start` and never ends: `part` over and over, compressed once.
fn endless(start: &[u8], part: &[u8]) -> impl Read + use<> {
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    member.extend(deflated(start));
    io::Cursor::new(member).chain(Cycle { part: deflated(part), at: 0 })
}

/// Without a final block, and ending on a byte, so that more can follow.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(bytes.len() + 1024);
    Compress::new(Compression::default(), false).compress_vec(bytes, &mut output, FlushCompress::Full).unwrap();
    output
}

struct Cycle {
    part: Vec<u8>,
    at: usize,
}

impl Read for Cycle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *buffer {
            *byte = self.part[self.at];
            self.at = (self.at + 1) % self.part.len();
        }
        Ok(buffer.len())
    }
}

/// That an endless stream is given up, for the limit on unpacked bytes, after less than `most` bytes of it.
fn ends_early(start: &[u8], part: &[u8], most: u64) {
    let mut input = Counted(endless(start, part), 0);
    assert_eq!(over(&mut input, &SMALL), (Limit::Unpacked, SMALL.unpacked));
    assert!(input.1 <= most + READ_AHEAD, "{} bytes were read", input.1);
}

#[test]
fn every_limit_is_met_exactly_and_not_by_one_more() {
    let tar = Tar::valid().directory("assets/").file("assets/a", "abc");
    let unpacked = "{}export default {}abc".len() as u64;
    let bundle = tar.gzip();
    let limits = Limits { compressed: bundle.len() as u64, unpacked, entries: 4 };
    let (contents, _) = collect(&*bundle, &limits).unwrap();
    assert_eq!((contents.unpacked_bytes, contents.entry_count), (unpacked, 4));

    let compressed = limits.compressed - 1;
    assert_eq!(over(&*bundle, &Limits { compressed, ..limits }), (Limit::Compressed, compressed));
    let unpacked = limits.unpacked - 1;
    assert_eq!(over(&*bundle, &Limits { unpacked, ..limits }), (Limit::Unpacked, unpacked));
    assert_eq!(over(&*bundle, &Limits { entries: 3, ..limits }), (Limit::Entries, 3));
}

#[test]
fn a_claimed_size_is_enough() {
    let claim = |size| {
        let tar = Tar::valid().header(&header(b"assets/bomb", b'0', size));
        let mut input = Counted(endless(&tar.0, &[0; 512]), 0);
        assert_eq!(over(&mut input, &SMALL), (Limit::Unpacked, SMALL.unpacked));
        assert!(input.1 <= READ_AHEAD, "{} bytes were read", input.1);
    };
    claim(SMALL.unpacked + 1);
    claim(0o777_7777_7777);
    claim(u64::MAX);
}

#[test]
fn a_bomb_of_zeros() {
    // 64 MiB behind the end marker, in 64 KiB: half of them is one buffer, and enough.
    let bomb = gzip(&Tar::valid().bytes(&vec![0; 64 << 20]).0);
    let mut input = Counted(&*bomb, 0);
    assert_eq!(over(&mut input, &SMALL), (Limit::Unpacked, SMALL.unpacked));
    assert!(input.1 <= READ_AHEAD && READ_AHEAD < bomb.len() as u64, "{} of {}", input.1, bomb.len());
}

#[test]
fn a_stream_that_never_ends() {
    let bound = SMALL.unpacked + SMALL.entries * 4096 + (1 << 20);
    // Padding, at two ratios: three orders of magnitude, and next to nothing.
    ends_early(&Tar::valid().bytes(&[0; 1024]).0, &[0; 1 << 16], bound / 100);
    ends_early(&Tar::valid().bytes(&[0; 1024]).0, &[0; 16], 2 * bound);
}

#[test]
fn headers_that_never_end() {
    let mut input = Counted(endless(&Tar::valid().0, &Tar::default().directory("./").0), 0);
    assert_eq!(over(&mut input, &SMALL), (Limit::Entries, SMALL.entries));
    // Extended headers are no entries; with all the attributes they may have they still end.
    let attributes = Tar::default().pax(&[("SCHILY.xattr.user.x", &[b'x'; 60_000])]).directory("./");
    let mut input = Counted(endless(&Tar::valid().0, &attributes.0), 0);
    let generous = Limits { entries: 1000, ..SMALL };
    assert_eq!(over(&mut input, &generous), (Limit::Unpacked, generous.unpacked));
}

#[test]
fn an_upload_that_never_ends() {
    let noise: Vec<u8> = (0..1 << 16).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let tar = Tar::valid().header(&header(b"assets/large", b'0', 1 << 30)).bytes(&noise);
    let limits = Limits { compressed: 1 << 20, unpacked: 1 << 31, entries: 10 };
    let mut input = Counted(endless(&tar.0, &noise), 0);
    assert_eq!(over(&mut input, &limits), (Limit::Compressed, 1 << 20));
    assert!(input.1 <= limits.compressed + READ_AHEAD);
}

#[test]
fn limits_without_limit_do_not_overflow() {
    let limits = Limits { compressed: u64::MAX, unpacked: u64::MAX, entries: u64::MAX };
    collect(&*Tar::valid().gzip(), &limits).unwrap();
    let vast = Tar::valid().header(&header(b"assets/a", b'0', u64::MAX)).gzip();
    let fault = collect(&*vast, &limits).unwrap_err();
    assert!(matches!(fault, Fault::Invalid { reason: Reason::Truncated, .. }), "{fault:?}");
}

#[test]
fn directories_that_are_only_in_names_are_limited_as_well() {
    let limits = Limits { compressed: 1 << 20, unpacked: 1 << 20, entries: 10 };
    // Two are `worker` and `assets`.
    let nested =
        |levels: usize| Tar::valid().long_name(&format!("assets/{}x", "d/".repeat(levels))).file("cut", "").gzip();
    collect(&*nested(38), &limits).unwrap();
    assert_eq!(over(&*nested(39), &limits), (Limit::Entries, 10));
    // Those that are entries are counted as such, if they come first as packers have it.
    let spelled = (0..5).fold(Tar::valid(), |tar, at| tar.directory(&format!("assets/{}", "d/".repeat(at))));
    collect(&*spelled.gzip(), &limits).unwrap();
}
