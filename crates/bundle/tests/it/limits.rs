//! The limits, and how many bytes the reader reads before it detects a violation.

use std::io::{self, Read};

use bundle::{BundleError, Limit, Limits, MAX_FILE_NAMES_BYTES, Reason};
use flate2::{Compress, Compression, FlushCompress};

use crate::support::{Tar, collect, gzip, header, read_too_large};

const SMALL: Limits = Limits { compressed: u64::MAX, unpacked: 1 << 20, entries: 10, names: MAX_FILE_NAMES_BYTES };

/// The number of bytes that the reader may read beyond the violation: one buffer.
const READ_AHEAD: u64 = 32 * 1024;

/// Counts the bytes read from an input.
struct Counted<R>(R, u64);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1 += count as u64;
        Ok(count)
    }
}

/// Returns a gzip member that starts with `start` and repeats `part` forever.
fn endless(start: &[u8], part: &[u8]) -> impl Read + use<> {
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    member.extend(deflate(start));
    io::Cursor::new(member).chain(Cycle { part: deflate(part), at: 0 })
}

/// Compresses without a final block, aligned to a byte, so that more data can follow.
fn deflate(bytes: &[u8]) -> Vec<u8> {
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

/// Asserts that an endless stream exceeds the limit on unpacked bytes within `max` bytes of input.
fn assert_ends_early(start: &[u8], part: &[u8], max: u64) {
    let mut input = Counted(endless(start, part), 0);
    assert_eq!(read_too_large(&mut input, &SMALL), (Limit::Unpacked, SMALL.unpacked));
    assert!(input.1 <= max + READ_AHEAD, "{} bytes were read", input.1);
}

#[test]
fn limits_are_inclusive() {
    let tar = Tar::valid().directory("assets/").file("assets/a", "abc");
    let unpacked = "{}export default {}abc".len() as u64;
    let bundle = tar.gzip();
    let limits = Limits { compressed: bundle.len() as u64, unpacked, entries: 4, names: MAX_FILE_NAMES_BYTES };
    let (contents, _) = collect(&*bundle, &limits).unwrap();
    assert_eq!((contents.unpacked_bytes, contents.entry_count), (unpacked, 4));

    let compressed = limits.compressed - 1;
    assert_eq!(read_too_large(&*bundle, &Limits { compressed, ..limits }), (Limit::Compressed, compressed));
    let unpacked = limits.unpacked - 1;
    assert_eq!(read_too_large(&*bundle, &Limits { unpacked, ..limits }), (Limit::Unpacked, unpacked));
    assert_eq!(read_too_large(&*bundle, &Limits { entries: 3, ..limits }), (Limit::Entries, 3));
}

#[test]
fn declared_size_over_the_limit_is_rejected() {
    let claim = |size| {
        let tar = Tar::valid().header(&header(b"assets/bomb", b'0', size));
        let mut input = Counted(endless(&tar.0, &[0; 512]), 0);
        assert_eq!(read_too_large(&mut input, &SMALL), (Limit::Unpacked, SMALL.unpacked));
        assert!(input.1 <= READ_AHEAD, "{} bytes were read", input.1);
    };
    claim(SMALL.unpacked + 1);
    claim(0o777_7777_7777);
    claim(u64::MAX);
}

#[test]
fn zeros_after_the_end_marker_count_towards_the_limit() {
    // 64 MiB after the end marker compress to 64 KiB. The reader must stop after one buffer of 32 KiB.
    let bomb = gzip(&Tar::valid().bytes(&vec![0; 64 << 20]).0);
    let mut input = Counted(&*bomb, 0);
    assert_eq!(read_too_large(&mut input, &SMALL), (Limit::Unpacked, SMALL.unpacked));
    assert!(input.1 <= READ_AHEAD && READ_AHEAD < bomb.len() as u64, "{} of {}", input.1, bomb.len());
}

#[test]
fn endless_padding_is_rejected() {
    let bound = SMALL.unpacked + SMALL.entries * 4096 + (1 << 20);
    // Padding at two compression ratios: about 1,000 and almost 1.
    assert_ends_early(&Tar::valid().bytes(&[0; 1024]).0, &[0; 1 << 16], bound / 100);
    assert_ends_early(&Tar::valid().bytes(&[0; 1024]).0, &[0; 16], 2 * bound);
}

#[test]
fn endless_headers_are_rejected() {
    let mut input = Counted(endless(&Tar::valid().0, &Tar::default().directory("./").0), 0);
    assert_eq!(read_too_large(&mut input, &SMALL), (Limit::Entries, SMALL.entries));
    // Extended headers do not count as entries, but their bytes do.
    let attributes = Tar::default().pax(&[("SCHILY.xattr.user.x", &[b'x'; 60_000])]).directory("./");
    let mut input = Counted(endless(&Tar::valid().0, &attributes.0), 0);
    let generous = Limits { entries: 1000, ..SMALL };
    assert_eq!(read_too_large(&mut input, &generous), (Limit::Unpacked, generous.unpacked));
}

#[test]
fn endless_upload_is_rejected() {
    let noise: Vec<u8> = (0..1 << 16).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let tar = Tar::valid().header(&header(b"assets/large", b'0', 1 << 30)).bytes(&noise);
    let limits = Limits { compressed: 1 << 20, unpacked: 1 << 31, entries: 10, names: MAX_FILE_NAMES_BYTES };
    let mut input = Counted(endless(&tar.0, &noise), 0);
    assert_eq!(read_too_large(&mut input, &limits), (Limit::Compressed, 1 << 20));
    assert!(input.1 <= limits.compressed + READ_AHEAD);
}

#[test]
fn maximum_limits_do_not_overflow() {
    let limits = Limits { compressed: u64::MAX, unpacked: u64::MAX, entries: u64::MAX, names: u64::MAX };
    collect(&*Tar::valid().gzip(), &limits).unwrap();
    let vast = Tar::valid().header(&header(b"assets/a", b'0', u64::MAX)).gzip();
    let error = collect(&*vast, &limits).unwrap_err();
    assert!(matches!(error, BundleError::Invalid { reason: Reason::Truncated, .. }), "{error:?}");
}

#[test]
fn implied_directories_are_limited() {
    let limits = Limits { compressed: 1 << 20, unpacked: 1 << 20, entries: 10, names: MAX_FILE_NAMES_BYTES };
    // The directories `worker` and `assets` count too.
    let nested =
        |levels: usize| Tar::valid().long_name(&format!("assets/{}x", "d/".repeat(levels))).file("cut", "").gzip();
    collect(&*nested(38), &limits).unwrap();
    assert_eq!(read_too_large(&*nested(39), &limits), (Limit::Entries, 10));
    // Directories with entries count as entries if they come before their files, as archivers write them.
    let explicit = (0..5).fold(Tar::valid(), |tar, at| tar.directory(&format!("assets/{}", "d/".repeat(at))));
    collect(&*explicit.gzip(), &limits).unwrap();
}

#[test]
fn names_of_all_files_are_limited() {
    let limits = Limits { compressed: 1 << 24, unpacked: 1 << 24, entries: 20_000, names: MAX_FILE_NAMES_BYTES };
    let name = |at: usize| format!("assets/{at:05}/{}", "x".repeat(1024 - "assets/00000/".len()));
    let longest = |count| (0..count).fold(Tar::default(), |tar, at| tar.long_name(&name(at)).file("cut", ""));
    // The rest is the length of `svc.json`.
    let last = name(99_999);
    let last = &last[..last.len() - "svc.json".len()];
    let count = MAX_FILE_NAMES_BYTES as usize / 1024 - 1;
    let tar = longest(count).file("svc.json", "{}").long_name(last).file("cut", "");
    // Directories do not count.
    let (contents, _) = collect(&*tar.directory("assets/empty/").gzip(), &limits).unwrap();
    assert_eq!(contents.asset_count as usize, count + 1);
    let error = collect(&*longest(count + 1).file("svc.json", "{}").gzip(), &limits).unwrap_err();
    assert_eq!(error.to_string(), "The bundle exceeds the limit of 2097152 bytes of file names in total.");
    assert_eq!(read_too_large(&*longest(count + 2).gzip(), &limits), (Limit::Names, MAX_FILE_NAMES_BYTES));
}
