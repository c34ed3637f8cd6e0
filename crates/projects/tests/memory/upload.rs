//! Large uploads that are streamed from disk.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use kernel::{BundleLimits, Limits, Plan};
use projects::Bundles;

use crate::admit;

pub struct Upload(PathBuf);

impl Upload {
    /// Writes an uncompressed bundle with one asset of this size.
    pub fn write(path: &Path, mebibytes: u64) -> Self {
        let mut archive = tar::Builder::new(GzEncoder::new(File::create(path).unwrap(), Compression::none()));
        let mut append = |name: &str, size: u64, content: &mut dyn io::Read| {
            let mut header = tar::Header::new_ustar();
            header.set_size(size);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content).unwrap();
        };
        append("svc.json", 2, &mut b"{}".as_slice());
        append("assets/noise", mebibytes << 20, &mut io::repeat(b'x').take(mebibytes << 20));
        archive.into_inner().unwrap().finish().unwrap();
        Self(path.to_owned())
    }

    /// Uploads the bundle in chunks of this size.
    pub async fn send(&self, bundles: &Bundles, chunk: usize) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let limits: BundleLimits = Limits::default().for_plan(Plan::Pro).bundle;
        let mut file = io::BufReader::with_capacity(64 * 1024, File::open(&self.0).unwrap());
        let chunks = std::iter::from_fn(|| {
            let mut bytes = vec![0; chunk];
            let length = file.read(&mut bytes).unwrap();
            bytes.truncate(length);
            (length > 0).then(|| Ok::<_, io::Error>(Bytes::from(bytes)))
        });
        let name = format!("upload-{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let received = bundles.receive(&name, limits, stream::iter(chunks), admit).await.unwrap();
        assert_eq!(received.contents.asset_count, 1);
    }
}
