//! The deletion of messages without a row, concurrently with uploads.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kernel::{ClockRng, Limits};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use objects::{Store, StoreConfig};
use tempfile::TempDir;

use crate::inbound::MESSAGE;
use crate::kit::Kit;

const DAY: i64 = 24 * 3600;

/// A folder in which each object with the content `uploaded again` is written again after it is listed.
#[derive(Debug)]
struct Rewriting {
    folder: PathBuf,
    objects: Arc<dyn ObjectStore>,
}

impl fmt::Display for Rewriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rewriting")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Rewriting {
    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(paths)
    }

    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.objects.put_opts(path, payload, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(path, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = self.folder.clone();
        let listed = self.objects.list(prefix).inspect(move |object| {
            let path = folder.join(object.as_ref().unwrap().location.as_ref());
            if fs::read(&path).unwrap() == b"uploaded again" {
                fs::write(&path, "uploaded again").unwrap();
            }
        });
        listed.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_is_uploaded_again_is_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_owned();
    let opened = StoreConfig::Folder(path.clone()).open().unwrap();
    let objects = Arc::new(Rewriting { folder: path.clone(), objects: Arc::clone(&opened.objects) });
    let kit = Kit::on_objects(folder, Store { objects, ..opened }, Limits::default(), |mail| mail).await;
    // The age of a message depends on the file system's clock, not on the clock of the tests.
    let now = ClockRng::system().now().unix_seconds();
    kit.advance(now - kit.now().unix_seconds());
    let shop = kit.project("shop").await;
    for _ in 0..2 {
        kit.upload(shop, kit.new_id(), MESSAGE).await.unwrap();
    }
    let uploads = || fs::read_dir(path.join(shop.project.to_string())).unwrap().map(|entry| entry.unwrap().path());
    fs::write(uploads().next().unwrap(), "uploaded again").unwrap();
    for upload in uploads() {
        let two_days_ago = SystemTime::UNIX_EPOCH + Duration::from_secs((now - 2 * DAY).unsigned_abs());
        File::options().write(true).open(upload).unwrap().set_modified(two_days_ago).unwrap();
    }
    kit.mail.purge_orphans().await.unwrap();
    let kept: Vec<_> = uploads().map(|upload| fs::read(upload).unwrap()).collect();
    assert_eq!(kept, [b"uploaded again"]);
}
