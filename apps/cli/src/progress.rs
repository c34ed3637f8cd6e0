//! An upload with a progress bar on a terminal.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use client::Upload;
use futures_util::stream;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Body;

const CHUNK: usize = 64 * 1024;

/// Returns the file as an upload, and its progress bar. A retry restarts both.
pub fn upload(file: File, bytes: u64) -> (Upload, ProgressBar) {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template("uploading [{bar:30}] {bytes} of {total_bytes}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (file, progress) = (Arc::new(file), bar.clone());
    let upload = Upload::new(bytes, move || {
        progress.set_position(0);
        Ok(Body::wrap_stream(stream::iter(Chunks { file: Arc::clone(&file), position: 0, bar: progress.clone() })))
    });
    (upload, bar)
}

/// Reads the file by position, so that an aborted attempt does not move the offset of the next.
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
