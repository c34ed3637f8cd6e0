//! The archives in the object store.

use std::time::SystemTime;

use bytes::Bytes;
use chrono::{DateTime, NaiveDateTime, Utc};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _};
use objects::{ObjectWriter, Store};

use super::error::{BackupError, Result};
use super::kind::Kind;
use crate::random;

/// The time in a key, in UTC.
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// The archives of all projects.
pub struct Archives(Store);

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

    /// Returns a writer of a new archive.
    pub fn writer(&self, key: &str) -> ObjectWriter {
        ObjectWriter::new(self.0.objects.clone(), Path::from(key), self.0.parts.clone())
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

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
