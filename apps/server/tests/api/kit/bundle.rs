//! Bundles.

use flate2::Compression;
use flate2::write::GzEncoder;

/// A gzipped tar of these files.
pub fn bundle(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// A static site with one page.
pub fn site(page: &str) -> Vec<u8> {
    bundle(&[("svc.json", "{}"), ("assets/index.html", page)])
}
