//! Deletion of blobs in the background.

use std::fs;

use uuid::Uuid;

use super::{Kind, Rig, TestStore, grant};

#[tokio::test(flavor = "multi_thread")]
async fn blob_that_cannot_be_deleted_does_not_delay_others() {
    let rig = Rig::start(TestStore::start(Kind::Folder).await);
    let (one, other) = (grant("one"), grant("other"));
    rig.put(&one, "key", "x").await;
    let folder = rig.store.folder("sto_one");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let blob = folder.join(names.filter(|name| Uuid::try_parse(name).is_ok()).collect::<String>());
    // A store cannot delete a folder that contains a file.
    fs::remove_file(&blob).unwrap();
    fs::create_dir(&blob).unwrap();
    fs::write(blob.join("file"), "").unwrap();
    rig.delete(&one, &["key"]).await;
    for grant in [&one, &other] {
        for _ in 0..10 {
            rig.put(grant, "replaced", "x").await;
        }
        rig.delete(grant, &["replaced"]).await;
    }
    rig.wait_for_blobs(1).await;
    assert!(blob.join("file").exists());
    // The deletion is tried again.
    fs::remove_dir_all(&blob).unwrap();
    fs::write(&blob, "").unwrap();
    rig.wait_for_blobs(0).await;
}
