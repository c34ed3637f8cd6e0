//! That uploads pass without their size being felt, and that those made to do harm are refused before they do. In a
//! process of its own, and one test after the other: nobody else's memory is measured.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on ends")]

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
use kernel::{Failure as _, World};
use projects::Bundles;

use crate::hostile::Hostile;
use crate::measure::{computed, peak_of};
use crate::slow::Slow;
use crate::upload::Upload;

const MB: u64 = 1_000_000;

/// What one upload may take, hostile or not, and what twenty may.
const ONE: u64 = 32 * MB;
const TWENTY: u64 = 256 * MB;

struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(World::system().id::<kernel::SessionId>().to_string());
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
async fn memory() {
    let folder = Folder::new();
    let bundles = Bundles::in_folder(&folder.0.join("store")).unwrap();
    let small = Upload::write(&folder.0.join("small"), 1);
    // Threads and buffers that the first upload of a process makes and every later one finds.
    small.send(&bundles, 64 * 1024).await;

    let large = Upload::write(&folder.0.join("large"), 199);
    let whole = peak_of(large.send(&bundles, 32 * 1024)).await;
    let middle = Upload::write(&folder.0.join("middle"), 40);
    let crumbs = peak_of(Upload::write(&folder.0.join("crumbs"), 20).send(&bundles, 64)).await;
    let twenty = peak_of(join_all((0..20).map(|_| middle.send(&bundles, 32 * 1024)))).await;

    let hostile = refused(&bundles, hostile::all()).await;

    // Twenty uploads of which a store takes a part only now and then.
    let bundles = Bundles::new(Arc::new(Slow));
    let slow = peak_of(middle.send(&bundles, 32 * 1024)).await;
    let twenty_slow = peak_of(join_all((0..20).map(|_| middle.send(&bundles, 32 * 1024)))).await;

    let peaks = [
        ("200 MiB", whole, ONE),
        ("20 MiB in chunks of 64 bytes", crumbs, ONE),
        ("one on a slow store", slow, ONE),
        ("twenty", twenty, TWENTY),
        ("twenty on a slow store", twenty_slow, TWENTY),
        ("the worst of the hostile ones", hostile, ONE),
    ];
    for (what, peak, most) in peaks {
        println!("{what}: {} kB", peak / 1000);
        assert!(peak < most, "{what}: {peak} bytes");
    }
    the_page_lists_them_all();
}

/// That each is refused as it says, in time; the most memory that one took.
async fn refused(bundles: &Bundles, all: Vec<Hostile>) -> u64 {
    let mut most = 0;
    for Hostile { what, upload, reason, entry } in all {
        let start = computed();
        let mut refused = None;
        let peak =
            peak_of(async { refused = bundles.receive("hostile", hostile::limits(), body(&upload)).await.err() });
        most = most.max(peak.await);
        let took = computed() - start;
        let details = refused.unwrap_or_else(|| panic!("{what} is taken")).details().unwrap();
        let told = details.get("reason").or(details.get("of")).unwrap();
        assert_eq!((told.as_str().unwrap(), details["entry"].as_str()), (reason, entry), "{what}");
        assert!(took < Duration::from_secs(2), "{what}: {took:?}");
    }
    most
}

fn body(upload: &[u8]) -> impl Stream<Item = std::io::Result<Bytes>> + Unpin {
    stream::iter(upload.chunks(32 * 1024).map(|chunk| Ok(Bytes::copy_from_slice(chunk))))
}

/// No test of its own: making them all takes memory, and here it is measured.
fn the_page_lists_them_all() {
    let all = hostile::all();
    assert!(all.len() >= 40);
    let mut page = String::from(include_str!("page.md"));
    for Hostile { what, reason, entry, .. } in all {
        let entry = entry.map(|entry| format!("`{entry}`")).unwrap_or_default();
        writeln!(page, "| {what} | `{reason}` | {entry} |").unwrap();
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hostile-bundles.md");
    let ours = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile-bundles.md");
    std::fs::write(&ours, &page).unwrap();
    let same = std::fs::read_to_string(&kept).is_ok_and(|kept| kept == page);
    assert!(same, "docs/hostile-bundles.md is not what the tests try; see {}", ours.display());
}
