//! Progress: a bar for an upload, and a line for an operation with phases.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use client::Upload;
use futures_util::stream;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Body;

use crate::output::Output;

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

/// The phases of an operation: one line that changes on a terminal, otherwise a line for each phase.
#[derive(Default)]
pub struct Phases {
    current: String,
    spinner: Option<ProgressBar>,
}

impl Phases {
    pub fn show(&mut self, out: &Output, phase: &str) {
        if self.current == phase {
            return;
        }
        phase.clone_into(&mut self.current);
        let spinner = self.spinner.get_or_insert_with(|| {
            let spinner = ProgressBar::new_spinner();
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        if spinner.is_hidden() {
            out.info(phase);
        } else {
            spinner.set_message(phase.to_owned());
        }
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
