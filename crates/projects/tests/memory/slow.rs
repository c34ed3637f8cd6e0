//! An object store that delays each part and stores nothing.

use std::fmt;
use std::time::Duration;

use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result, UploadPart,
};

#[derive(Debug, Default)]
pub struct Slow;

#[derive(Debug)]
struct SlowUpload;

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

#[async_trait::async_trait]
impl MultipartUpload for SlowUpload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(part);
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}

#[async_trait::async_trait]
impl ObjectStore for Slow {
    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(SlowUpload))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Ok(())
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        paths
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(object_store::Error::NotImplemented { operation: "put".into(), implementer: "Slow".into() })
    }

    async fn get_opts(&self, path: &Path, _: GetOptions) -> Result<GetResult> {
        Err(object_store::Error::NotFound { path: path.to_string(), source: "nothing is kept".into() })
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        Box::pin(futures_util::stream::empty())
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Ok(ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() })
    }
}
