//! Bundles to test with.

use flate2::Compression;
use flate2::write::GzEncoder;

/// A gzipped tar of these files, a bundle or not.
///
/// # Panics
/// When a path fits in no header.
#[expect(clippy::expect_used, reason = "called by tests only, which end like this")]
#[must_use]
pub fn pack(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, *content).expect("a path that fits");
    }
    let packed = archive.into_inner().and_then(GzEncoder::finish);
    packed.expect("memory takes what is written to it")
}

/// A static site with one page.
#[must_use]
pub fn site(page: &str) -> Vec<u8> {
    pack(&[("svc.json", b"{}"), ("assets/index.html", page.as_bytes())])
}
