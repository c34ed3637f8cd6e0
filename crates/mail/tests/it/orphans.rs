//! The deletion of messages without a row, concurrently with uploads, and the deletion of mail in a store that refuses a
//! deletion.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kernel::{ClockRng, Limits};
use mail::Target;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use objects::{Store, StoreConfig};
use store::Connection;
use tempfile::TempDir;

use crate::inbound::MESSAGE;
use crate::kit::{Kit, outgoing};

const DAY: i64 = 24 * 3600;

/// The number of deletions that a store has refused during an outage, or `None` if the store is available. The outage is
/// that of a file system that is mounted read-only: it refuses deletions only in folders that exist.
type Outage = Arc<Mutex<Option<usize>>>;

/// The number of messages that a store has listed and not deleted since then, and its maximum.
type Backlog = Arc<Mutex<(usize, usize)>>;

/// A folder in which each object with the content `uploaded again` is written again after it is listed, and each object
/// with the content `locked` cannot be deleted.
#[derive(Debug)]
struct FaultyStore {
    folder: PathBuf,
    objects: Arc<dyn ObjectStore>,
    outage: Outage,
    backlog: Backlog,
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

#[async_trait::async_trait]
impl ObjectStore for FaultyStore {
    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (folder, outage, backlog) = (self.folder.clone(), Arc::clone(&self.outage), Arc::clone(&self.backlog));
        let checked = paths.map(move |path: Result<Path>| -> Result<Path> {
            let path = path?;
            let file = folder.join(path.as_ref());
            if let Some(refused) = outage.lock().unwrap().as_mut()
                && file.parent().unwrap().exists()
            {
                *refused += 1;
                return Err(Error::Generic { store: "FaultyStore", source: "the store is unavailable".into() });
            }
            if fs::read(file).is_ok_and(|content| content == b"locked") {
                return Err(Error::Generic { store: "FaultyStore", source: "the object is locked".into() });
            }
            let mut backlog = backlog.lock().unwrap();
            backlog.0 = backlog.0.saturating_sub(1);
            Ok(path)
        });
        self.objects.delete_stream(checked.boxed())
    }

    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.objects.put_opts(path, payload, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(path, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (folder, backlog) = (self.folder.clone(), Arc::clone(&self.backlog));
        let listed = self.objects.list(prefix).inspect(move |object| {
            let path = folder.join(object.as_ref().unwrap().location.as_ref());
            if fs::read(&path).unwrap() == b"uploaded again" {
                fs::write(&path, "uploaded again").unwrap();
            }
            let mut backlog = backlog.lock().unwrap();
            backlog.0 += 1;
            backlog.1 = backlog.0.max(backlog.1);
        });
        listed.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }
}

async fn start() -> Kit {
    start_with(Outage::default(), Backlog::default()).await
}

async fn start_with(outage: Outage, backlog: Backlog) -> Kit {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_owned();
    let opened = StoreConfig::Folder(path.clone()).open().unwrap();
    let objects = Arc::new(FaultyStore { folder: path, objects: Arc::clone(&opened.objects), outage, backlog });
    let kit = Kit::on_objects(folder, Store { objects, ..opened }, Limits::default(), |mail| mail).await;
    // The age of a message depends on the file system's clock, not on the clock of the tests.
    kit.advance(ClockRng::system().now().unix_seconds() - kit.now().unix_seconds());
    kit
}

/// Uploads a message of a project, replaces its content if it is not empty, and makes it two days old.
async fn upload(kit: &Kit, project: Target, content: &str) {
    let id = kit.new_id();
    kit.upload(project, id, MESSAGE).await.unwrap();
    let path = kit.folder.path().join(project.project.to_string()).join(id.to_string());
    if !content.is_empty() {
        fs::write(&path, content).unwrap();
    }
    let two_days_ago = Duration::from_secs((kit.now().unix_seconds() - 2 * DAY).unsigned_abs());
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH + two_days_ago).unwrap();
}

/// Returns the contents of the stored messages of a project.
fn contents(kit: &Kit, project: Target) -> Vec<String> {
    let entries = fs::read_dir(kit.folder.path().join(project.project.to_string())).unwrap();
    entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_is_uploaded_again_is_kept() {
    let kit = start().await;
    let shop = kit.project("shop").await;
    upload(&kit, shop, "").await;
    upload(&kit, shop, "uploaded again").await;
    kit.mail.purge_orphans().await.unwrap();
    assert_eq!(contents(&kit, shop), ["uploaded again"]);
}

/// A project can have millions of messages.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_deleted_before_all_are_listed() {
    let backlog = Backlog::default();
    let kit = start_with(Outage::default(), Arc::clone(&backlog)).await;
    let take_maximum = || std::mem::take(&mut *backlog.lock().unwrap()).1;
    let shop = kit.project("shop").await;
    for _ in 0..501 {
        upload(&kit, shop, "").await;
    }
    kit.mail.purge_orphans().await.unwrap();
    assert_eq!((take_maximum(), kit.objects()), (500, 0));
    for _ in 0..3 {
        upload(&kit, shop, "").await;
    }
    kit.store
        .transaction_unaudited(async |tx: &mut Connection| kit.mail.purge(tx, &[shop.project]).await)
        .await
        .unwrap();
    kit.mail.purge_deleted().await.unwrap();
    assert_eq!((take_maximum(), kit.objects()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_cannot_be_deleted_does_not_keep_other_messages() {
    let kit = start().await;
    let shop = kit.project("shop").await;
    // Projects and messages are processed in the order of their ids.
    kit.advance(1);
    let blog = kit.project("blog").await;
    // After nine consecutive failures, the run checks the store.
    for _ in 0..10 {
        upload(&kit, shop, "locked").await;
    }
    kit.advance(1);
    upload(&kit, shop, "").await;
    upload(&kit, blog, "").await;
    kit.mail.purge_orphans().await.unwrap_err();
    assert_eq!(contents(&kit, shop), ["locked"; 10]);
    assert_eq!(kit.objects(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_cannot_be_deleted_does_not_keep_other_mail_of_a_purged_project() {
    let outage = Outage::default();
    let kit = start_with(Arc::clone(&outage), Backlog::default()).await;
    let shop = kit.project("shop").await;
    let folder = kit.folder.path().join(shop.project.to_string());
    let locked = kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    fs::write(folder.join(locked.to_string()), "locked").unwrap();
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    upload(&kit, shop, "locked").await;
    upload(&kit, shop, "").await;
    let id = shop.project.as_uuid();
    kit.db_execute(&format!("INSERT INTO mail.suppressions VALUES ('{id}', 'a@b.org', 'bounce', NULL, now())")).await;
    kit.store
        .transaction_unaudited(async |tx: &mut Connection| kit.mail.purge(tx, &[shop.project]).await)
        .await
        .unwrap();
    kit.mail.purge_deleted().await.unwrap_err();
    assert_eq!(contents(&kit, shop), ["locked"; 2]);
    assert_eq!(kit.entry(shop, locked).await.id, locked);
    let count = async |table: &str| kit.db_number(&format!("SELECT count(*) FROM mail.{table}")).await;
    assert_eq!((count("messages").await, count("suppressions").await, count("mailboxes").await), (1, 0, 1));
    // A run attempts each message once.
    *outage.lock().unwrap() = Some(0);
    kit.mail.purge_deleted().await.unwrap_err();
    assert_eq!(outage.lock().unwrap().take(), Some(2));
    for object in fs::read_dir(folder).unwrap() {
        fs::write(object.unwrap().path(), "").unwrap();
    }
    kit.mail.purge_deleted().await.unwrap();
    assert_eq!((count("messages").await, count("mailboxes").await, kit.objects()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_ends_if_the_store_is_unavailable() {
    let outage = Outage::default();
    let kit = start_with(Arc::clone(&outage), Backlog::default()).await;
    let mut projects = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let target = kit.project(name).await;
        for _ in 0..4 {
            upload(&kit, target, "").await;
        }
        projects.push(target.project);
    }
    // A run attempts nine messages and two checks: one in the third project, and one before the fourth project.
    *outage.lock().unwrap() = Some(0);
    kit.mail.purge_orphans().await.unwrap_err();
    assert_eq!(*outage.lock().unwrap(), Some(11));
    kit.store.transaction_unaudited(async |tx: &mut Connection| kit.mail.purge(tx, &projects).await).await.unwrap();
    kit.mail.purge_deleted().await.unwrap_err();
    assert_eq!(outage.lock().unwrap().take(), Some(22));
    assert_eq!(kit.objects(), 20);
    kit.mail.purge_deleted().await.unwrap();
    assert_eq!(kit.objects(), 0);
}
