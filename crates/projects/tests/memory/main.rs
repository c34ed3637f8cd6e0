//! Measures the memory use of large and hostile uploads. This is a separate process with a single test, so that no
//! other test affects the measurement.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failed test panics")]

mod hostile;
mod measure;
mod slow;
mod upload;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{Stream, stream};
use kernel::{ApiError as _, ClockRng};
use objects::{PartLimits, Store, StoreConfig};
use projects::{Bundles, ProjectError, StoredBundle};

use crate::hostile::Hostile;
use crate::measure::{cpu_time, peak_of};
use crate::slow::Slow;
use crate::upload::Upload;

const MB: u64 = 1_000_000;

/// Admits every bundle to a bundle store.
async fn admit(_: &StoredBundle) -> Result<(), ProjectError> {
    Ok(())
}

/// The memory limit of one upload, hostile or not.
const MAX_ONE: u64 = 32 * MB;
/// The memory limit of twenty concurrent uploads.
const MAX_TWENTY: u64 = 256 * MB;

struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(ClockRng::system().id::<kernel::SessionId>().to_string());
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_use_limited_memory() {
    let folder = Folder::new();
    let bundles = Bundles::new(StoreConfig::Folder(folder.0.join("store")).open().unwrap());
    let small = Upload::write(&folder.0.join("small"), 1);
    // The first upload creates threads and buffers that later uploads reuse.
    small.send(&bundles, 64 * 1024).await;

    let large = Upload::write(&folder.0.join("large"), 199);
    let whole = peak_of(large.send(&bundles, 32 * 1024)).await;
    let middle = Upload::write(&folder.0.join("middle"), 40);
    let crumbs = peak_of(Upload::write(&folder.0.join("crumbs"), 20).send(&bundles, 64)).await;
    let twenty = peak_of(join_all((0..20).map(|_| middle.send(&bundles, 32 * 1024)))).await;

    let hostile = reject_all(&bundles, hostile::all()).await;

    // Twenty uploads to a slow store.
    let bundles = Bundles::new(Store { objects: Arc::new(Slow), folder: None, parts: PartLimits::remote() });
    let slow = peak_of(middle.send(&bundles, 32 * 1024)).await;
    let twenty_slow = peak_of(join_all((0..20).map(|_| middle.send(&bundles, 32 * 1024)))).await;

    let peaks = [
        ("200 MiB", whole, MAX_ONE),
        ("20 MiB in chunks of 64 bytes", crumbs, MAX_ONE),
        ("one on a slow store", slow, MAX_ONE),
        ("twenty", twenty, MAX_TWENTY),
        ("twenty on a slow store", twenty_slow, MAX_TWENTY),
        ("largest of the hostile uploads", hostile, MAX_ONE),
    ];
    for (description, peak, max) in peaks {
        println!("{description}: {} kB", peak / 1000);
        assert!(peak < max, "{description}: {peak} bytes");
    }
    assert_page_is_current();
}

/// Asserts that each archive is rejected as expected, in time. Returns the largest memory use.
async fn reject_all(bundles: &Bundles, all: Vec<Hostile>) -> u64 {
    let mut max = 0;
    for Hostile { description, upload, reason, entry } in all {
        let start = cpu_time();
        let mut error = None;
        let peak =
            peak_of(async { error = bundles.receive("hostile", hostile::limits(), body(&upload), admit).await.err() });
        max = max.max(peak.await);
        let took = cpu_time() - start;
        let details = error.unwrap_or_else(|| panic!("{description} is accepted")).details().unwrap();
        let violation = details.get("reason").or(details.get("of")).unwrap();
        assert_eq!((violation.as_str().unwrap(), details["entry"].as_str()), (reason, entry), "{description}");
        assert!(took < Duration::from_secs(2), "{description}: {took:?}");
    }
    max
}

fn body(upload: &[u8]) -> impl Stream<Item = std::io::Result<Bytes>> + Unpin {
    stream::iter(upload.chunks(32 * 1024).map(|chunk| Ok(Bytes::copy_from_slice(chunk))))
}

/// Asserts that `docs/hostile-bundles.md` lists all archives. This is not a separate test, because building the
/// archives uses memory.
fn assert_page_is_current() {
    let all = hostile::all();
    assert!(all.len() >= 40);
    let mut page = String::from(include_str!("page.md"));
    for Hostile { description, reason, entry, .. } in all {
        let entry = entry.map(|entry| format!("`{entry}`")).unwrap_or_default();
        writeln!(page, "| {description} | `{reason}` | {entry} |").unwrap();
    }
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hostile-bundles.md");
    let generated = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile-bundles.md");
    std::fs::write(&generated, &page).unwrap();
    let same = std::fs::read_to_string(&committed).is_ok_and(|committed| committed == page);
    assert!(same, "docs/hostile-bundles.md is outdated; the generated page is {}", generated.display());
}
