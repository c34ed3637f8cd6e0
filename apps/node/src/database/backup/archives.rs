//! The archives in the object store.

use std::time::SystemTime;

use bytes::Bytes;
use chrono::{DateTime, NaiveDateTime, Utc};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _};
use objects::{ObjectWriter, Store};
use protocol::GenerationRef;
use sha256::Digester;

use super::error::{BackupError, Result};
use super::kind::Kind;
use crate::random;

/// The time in a key, in UTC.
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// The archives of all projects.
pub struct Archives(Store);

/// An archive that is being written. It appears in the store when it is finished.
pub struct ArchiveWriter {
    key: String,
    object: ObjectWriter,
    digester: Digester,
    size: u64,
}

/// An object in the folder of a project.
pub struct ListedArchive {
    pub key: String,
    pub size: u64,
    /// The time in the key; `None` if the key has another format.
    pub created_at: Option<SystemTime>,
}

/// Creates a key: the project, the time and a random id.
pub fn new_key(project: &str, kind: Kind, created_at: SystemTime) -> String {
    let time = DateTime::<Utc>::from(created_at).format(TIME_FORMAT);
    let folder = if kind == Kind::Export { "/exports" } else { "" };
    format!("{project}{folder}/{time}-{}.dump", random::id())
}

fn time_of(path: &Path) -> Option<SystemTime> {
    let (time, _) = path.filename()?.strip_suffix(".dump")?.split_once('-')?;
    Some(NaiveDateTime::parse_from_str(time, TIME_FORMAT).ok()?.and_utc().into())
}

impl Archives {
    pub const fn new(store: Store) -> Self {
        Self(store)
    }

    /// Returns a writer of a new archive. It may become twice as large as `expected_bytes`.
    pub fn writer(&self, key: &str, expected_bytes: u64) -> ArchiveWriter {
        let Store { objects, parts, .. } = &self.0;
        let object = ObjectWriter::with_expected_size(objects.clone(), Path::from(key), parts.clone(), expected_bytes);
        ArchiveWriter { key: key.to_owned(), object, digester: Digester::default(), size: 0 }
    }

    /// Reads an archive.
    pub async fn read(&self, key: &str) -> Result<BoxStream<'static, Result<Bytes>>> {
        match self.0.objects.get(&Path::from(key)).await {
            Ok(opened) => Ok(opened.into_stream().map_err(BackupError::Store).boxed()),
            Err(Error::NotFound { .. }) => Err(BackupError::Missing(key.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an archive, if it exists, and its unfinished uploads ([`Store::delete_unfinished`]).
    pub async fn delete(&self, key: &str) -> Result<()> {
        if let Some((folder, name)) = key.rsplit_once('/') {
            let name = name.to_owned();
            self.0.delete_unfinished(folder, move |object| object == name).await?;
        }
        match self.0.objects.delete(&Path::from(key)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the unfinished uploads of a project ([`Store::delete_unfinished`]).
    pub async fn delete_unfinished(&self, project: &str) -> Result<()> {
        for folder in [project.to_owned(), format!("{project}/exports")] {
            self.0.delete_unfinished(&folder, |_| true).await?;
        }
        Ok(())
    }

    /// Lists the archives of a project, including its exports.
    pub async fn list(&self, project: &str) -> Result<Vec<ListedArchive>> {
        let listed = self.0.objects.list(Some(&Path::from(project)));
        let archives = listed.map_ok(|object| ListedArchive {
            created_at: time_of(&object.location),
            key: object.location.to_string(),
            size: object.size,
        });
        Ok(archives.try_collect().await?)
    }
}

impl ArchiveWriter {
    /// Appends bytes, and waits for buffer space.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        let max = self.object.max_bytes();
        if self.size > max {
            let max = max >> 20;
            return Err(BackupError::Limit(format!(
                "the backup is larger than {max} MiB, which the store cannot hold"
            )));
        }
        self.digester.update(bytes);
        Ok(self.object.write(bytes).await?)
    }

    /// Completes the archive.
    pub async fn finish(self) -> Result<GenerationRef> {
        self.object.finish().await?;
        Ok(GenerationRef { key: self.key, size_bytes: self.size, sha256: self.digester.finish().hex() })
    }

    /// Aborts the upload.
    pub async fn abort(self) {
        self.object.abort().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use objects::StoreConfig;

    use super::*;

    #[tokio::test]
    async fn archive_that_exceeds_the_largest_object_of_the_store_is_a_permanent_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = StoreConfig::Folder(folder.path().to_owned()).open().unwrap();
        // The parts of a folder have 256 KiB.
        store.parts = store.parts.with_max_parts(4);
        let archives = Archives::new(store);
        let chunk = vec![7; 64 << 10];
        let mut small = archives.writer("prj_1/small", 0);
        for _ in 0..16 {
            small.write(&chunk).await.unwrap();
        }
        let error = small.write(&[7]).await.unwrap_err();
        assert!(error.is_permanent(), "{error}");
        assert_eq!(error.to_string(), "the backup is larger than 1 MiB, which the store cannot hold");
        small.abort().await;
        // The expected size of an archive determines the size of its parts.
        let mut large = archives.writer("prj_1/large", 1 << 20);
        for _ in 0..32 {
            large.write(&chunk).await.unwrap();
        }
        let stored = large.finish().await.unwrap();
        assert_eq!((stored.key.as_str(), stored.size_bytes), ("prj_1/large", 2 << 20));
        let listed = archives.list("prj_1").await.unwrap();
        assert_eq!(
            listed.iter().map(|archive| (&archive.key, archive.size)).collect::<Vec<_>>(),
            [(&stored.key, 2 << 20)]
        );
    }

    #[test]
    fn key_contains_project_and_time() {
        let time = UNIX_EPOCH + Duration::from_secs(1_795_423_992);
        let key = new_key("prj_1", Kind::Export, time);
        assert!(key.starts_with("prj_1/exports/20261123T085312Z-"), "{key}");
        assert_eq!(time_of(&Path::from(key.as_str())), Some(time));
        assert_eq!(Path::parse(&key).unwrap(), Path::from(key));
        for other in ["prj_1/owner", "prj_1/x-y.dump", "prj_1/20261323T085312Z-1.dump"] {
            assert_eq!(time_of(&Path::from(other)), None, "{other}");
        }
    }
}
