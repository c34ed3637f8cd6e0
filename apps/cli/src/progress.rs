//! An upload that shows how far it is, where a terminal shows it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use client::Upload;
use futures_util::stream;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Body;

const CHUNK: usize = 64 * 1024;

/// The file as an upload, and the bar that goes with it. A further attempt begins both anew.
pub fn upload(file: File, bytes: u64) -> (Upload, ProgressBar) {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template("uploading [{bar:30}] {bytes} of {total_bytes}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (file, shown) = (Arc::new(file), bar.clone());
    let upload = Upload::new(bytes, move || {
        shown.set_position(0);
        Ok(Body::wrap_stream(stream::iter(Chunks { file: Arc::clone(&file), position: 0, bar: shown.clone() })))
    });
    (upload, bar)
}

/// By position: an attempt that has not quite ended moves nothing for the next one.
struct Chunks {
    file: Arc<File>,
    position: u64,
    bar: ProgressBar,
}

impl Iterator for Chunks {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut chunk = vec![0; CHUNK];
        match self.file.read_at(&mut chunk, self.position) {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                self.position += read as u64;
                self.bar.inc(read as u64);
                Some(Ok(chunk))
            }
            Err(error) => Some(Err(error)),
        }
    }
}
