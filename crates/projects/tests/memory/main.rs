//! That an upload passes without its size being felt. In a process of its own: nobody else's memory is measured.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use kernel::{BundleLimits, World};
use object_store::local::LocalFileSystem;
use projects::Bundles;

const MIB: u64 = 1 << 20;
const CHUNK: usize = 64;
const LIMITS: BundleLimits = BundleLimits { compressed: 64 * MIB, unpacked: 64 * MIB, entries: 10 };

/// A bundle with one asset of so many bytes that do not compress, written without ever being in memory.
fn write_bundle(path: &Path, bytes: u64) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::none()));
    let mut append = |name: &str, size: u64, content: &mut dyn io::Read| {
        let mut header = tar::Header::new_ustar();
        header.set_size(size);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content).unwrap();
    };
    append("svc.json", 2, &mut b"{}".as_slice());
    append("assets/noise", bytes, &mut io::repeat(b'x').take(bytes));
    let mut file = archive.into_inner().unwrap().finish().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

/// What of this process is in memory, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Uploads the file in tiny chunks, as a client may choose to, and tells the most memory that was seen meanwhile.
async fn upload(bundles: &Bundles, name: &str, mut file: File) -> u64 {
    let (mut most, mut sent) = (0, 0);
    let chunks = std::iter::from_fn(|| {
        let mut chunk = vec![0; CHUNK];
        let length = file.read(&mut chunk).unwrap();
        chunk.truncate(length);
        sent += 1;
        if sent % 256 == 0 {
            most = most.max(resident());
        }
        (length > 0).then(|| Ok::<_, io::Error>(Bytes::from(chunk)))
    });
    let received = bundles.receive(name, LIMITS, stream::iter(chunks)).await.unwrap();
    assert_eq!(received.contents.asset_count, 1);
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_of_twenty_megabytes_passes_in_less() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(World::system().id::<kernel::SessionId>().to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let bundles = Bundles::new(Arc::new(LocalFileSystem::new_with_prefix(&folder).unwrap()));
    // Threads and buffers that the first upload of a process makes and every later one finds.
    upload(&bundles, "first", write_bundle(&folder.join("small"), MIB / 4)).await;

    let file = write_bundle(&folder.join("large"), 20 * MIB);
    let before = resident();
    let most = upload(&bundles, "second", file).await;
    let grown = most.saturating_sub(before);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(grown < 16 * MIB, "grown by {grown} bytes");
}
