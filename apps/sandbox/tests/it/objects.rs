//! The S3 server.

use object_store::aws::AmazonS3Builder;
use object_store::{Error, ObjectStoreExt as _};
use sandbox::S3Server;

use super::TestSandbox;

#[tokio::test]
async fn objects_are_stored_with_credentials_and_listed() {
    let sandbox = TestSandbox::start().await;
    let bucket = |secret: &str| {
        let builder = AmazonS3Builder::new().with_bucket_name("objects").with_region("us-east-1").with_allow_http(true);
        let builder = builder.with_endpoint(format!("http://{}", sandbox.s3));
        builder.with_access_key_id(S3Server::ACCESS_KEY_ID).with_secret_access_key(secret).build().unwrap()
    };
    let objects = bucket(S3Server::SECRET_ACCESS_KEY);
    objects.put(&"folder/<one>".into(), "content".into()).await.unwrap();
    let read = objects.get(&"folder/<one>".into()).await.unwrap().bytes().await.unwrap();
    assert_eq!(read, "content");
    let refused = bucket("guess").get(&"folder/<one>".into()).await.unwrap_err();
    assert!(matches!(refused, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }), "{refused:?}");
    let page = sandbox.text("/s3").await;
    assert!(page.contains("<h2>objects</h2><p>1 objects</p>") && page.contains("one"), "{page}");
    assert!(sandbox.text("/").await.contains("1 buckets"));
}
