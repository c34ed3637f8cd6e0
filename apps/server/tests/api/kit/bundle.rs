//! Bundles.

pub use ::bundle::testing::site;

/// A gzipped tar of these files.
pub fn bundle(files: &[(&str, &str)]) -> Vec<u8> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, content)| (*path, content.as_bytes())).collect();
    ::bundle::testing::pack(&files)
}
