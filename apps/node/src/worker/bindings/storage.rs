//! `env.storage`: objects under the project's prefix.
//!
//! A call is a `POST` to its name. Its arguments are JSON in the body; in a put, they are in a header and the body is
//! the content. The response is JSON, the content of a get with the object in a header, or 204 for `null`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use actix_web::body::SizedStream;
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::{Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::calls::{self, BodyError};
use super::{Binding, BindingCall, Caller, error};
use crate::environment::Environment;
use crate::index::Code;
use crate::storage::{
    Attributes, Condition, Content, ContentRange, Grant, Key, ListOptions, Position, PutOptions, Result, Storage,
    StorageError, StoredObject, etag,
};

/// The header with the arguments of a put: JSON, percent-encoded.
const ARGUMENTS_HEADER: &str = "svc-storage-arguments";
/// The header with a text that ends the content of a stream. The stream failed if its content ends without this text.
const END_HEADER: &str = "svc-storage-end";
/// The header with the object of a get: JSON, percent-encoded.
const OBJECT_HEADER: &str = "svc-storage-object";

const MAX_LIMIT: usize = 1000;
const MAX_DELETED: usize = 1000;
/// The longest arguments with one key or prefix. JSON escapes take up to six bytes for a byte of a key.
const MAX_SHORT_ARGUMENTS: usize = 32 << 10;
/// The longest arguments of a delete.
const MAX_LONG_ARGUMENTS: usize = 8 << 20;

/// The binding `storage`; `None` if the node has no object storage.
pub struct StorageBinding(pub Option<Arc<Storage>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Put {
    key: String,
    content_type: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    only_if: Option<OnlyIf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum OnlyIf {
    Etag(String),
    Absent(bool),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Get {
    key: String,
    range: Option<ContentRange>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    #[serde(deserialize_with = "read_keys")]
    keys: Vec<String>,
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Vec<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("keys")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> std::result::Result<Vec<String>, A::Error> {
        let mut keys = Vec::new();
        while keys.len() <= MAX_DELETED {
            let Some(key) = sequence.next_element()? else { return Ok(keys) };
            keys.push(key);
        }
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(keys)
    }
}

/// Reads keys, but stores only one more than a call can delete: short keys take a multiple of their length in memory.
fn read_keys<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    deserializer.deserialize_seq(KeysVisitor)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    delimiter: String,
    limit: usize,
    cursor: Option<String>,
}

impl Binding for StorageBinding {
    fn name(&self) -> &'static str {
        "storage"
    }

    fn is_granted(&self, environment: &Environment, _: Option<&Code>) -> bool {
        environment.storage().is_some()
    }

    fn module(&self) -> Option<&'static str> {
        Some(include_str!("storage.js"))
    }

    fn handle<'a>(&'a self, call: BindingCall<'a>) -> LocalBoxFuture<'a, HttpResponse> {
        Box::pin(async move {
            let response = self.respond(&call.caller, call.request, call.payload).await;
            response.unwrap_or_else(|failed| error(status(failed), failed.code(), &failed.to_string()))
        })
    }
}

impl StorageBinding {
    async fn respond(&self, caller: &Caller, request: &HttpRequest, payload: &mut Payload) -> Result<HttpResponse> {
        let storage = self.0.as_ref().ok_or(StorageError::NOT_CONFIGURED)?;
        let grant = caller.environment.storage().and_then(|part| Grant::new(&caller.owner, &caller.project, part));
        let grant = grant.ok_or(StorageError::FAILED)?;
        match request.path() {
            "/put" => put(storage, caller, request, payload).await,
            "/get" => {
                let Get { key, range } = read(payload, MAX_SHORT_ARGUMENTS).await?;
                Ok(storage.get(&grant, Key::parse(key)?, range).await?.map_or_else(null, content))
            }
            "/head" => {
                let Head { key } = read(payload, MAX_SHORT_ARGUMENTS).await?;
                Ok(storage.head(&grant, Key::parse(key)?).await?.map_or_else(null, value))
            }
            "/delete" => {
                let mut call = storage.begin_bulk_call(&grant).await?;
                let Delete { keys } = read(payload, MAX_LONG_ARGUMENTS).await?;
                if keys.len() > MAX_DELETED {
                    return Err(StorageError::InvalidArgument("At most 1,000 keys can be deleted in one call."));
                }
                let keys = keys.into_iter().map(Key::parse).collect::<Result<_>>()?;
                storage.delete(&mut call, &grant, keys).await?;
                Ok(null())
            }
            "/list" => {
                let mut call = storage.begin_bulk_call(&grant).await?;
                let List { prefix, delimiter, limit, cursor } = read(payload, MAX_SHORT_ARGUMENTS).await?;
                let after = cursor.map(|cursor| Position::decode(&cursor)).transpose()?;
                let limit = limit.clamp(1, MAX_LIMIT);
                let page = storage.list(&mut call, &grant, ListOptions { prefix, delimiter, limit, after }).await?;
                let cursor = page.next.as_ref().map(Position::encode);
                let response = value(json!({ "objects": page.objects, "prefixes": page.prefixes, "cursor": cursor }));
                Ok(calls::guard(response, call))
            }
            _ => Err(StorageError::InvalidArgument("Unknown operation.")),
        }
    }
}

async fn put(
    storage: &Arc<Storage>,
    caller: &Caller,
    request: &HttpRequest,
    payload: &mut Payload,
) -> Result<HttpResponse> {
    let header = |name: &str| request.headers().get(name)?.to_str().ok();
    let encoded = percent_decode_str(header(ARGUMENTS_HEADER).unwrap_or_default());
    let Put { key, content_type, metadata, only_if } = parse(&encoded.collect::<Vec<u8>>())?;
    let options = PutOptions {
        attributes: Attributes { content_type, metadata },
        condition: only_if.map(condition).transpose()?,
        length: header(CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok()),
    };
    let content = payload.map_err(|error| error.to_string());
    let content = match header(END_HEADER) {
        Some(end) => without_end(content, end.to_owned().into()).boxed_local(),
        None => content.boxed_local(),
    };
    let (owner, project) = (caller.owner.clone(), caller.project.clone());
    let environments = Arc::clone(&caller.environments);
    let current = move || Grant::new(&owner, &project, environments.get(&project)?.parts.storage()?);
    Ok(storage.put(current, Key::parse(key)?, options, content).await?.map_or_else(null, value))
}

fn condition(only_if: OnlyIf) -> Result<Condition> {
    match only_if {
        OnlyIf::Absent(true) => Ok(Condition::Absent),
        OnlyIf::Absent(false) => Err(StorageError::InvalidArgument("`onlyIf.absent` must be true.")),
        // An etag in another spelling, such as upper case, is not the etag of any object.
        OnlyIf::Etag(text) => Ok(Condition::Blob(Uuid::try_parse(&text).ok().filter(|blob| etag(*blob) == text))),
    }
}

/// Removes the text at the end of a stream. Fails if the stream ends without this text.
fn without_end(
    content: impl Stream<Item = std::result::Result<Bytes, String>> + Unpin,
    end: Bytes,
) -> impl Stream<Item = std::result::Result<Bytes, String>> {
    stream::try_unfold((content, BytesMut::new()), move |(mut content, mut held)| {
        let end = end.clone();
        async move {
            while let Some(chunk) = content.try_next().await? {
                held.extend_from_slice(&chunk);
                if held.len() > end.len() {
                    let ready = held.split_to(held.len() - end.len()).freeze();
                    return Ok(Some((ready, (content, held))));
                }
            }
            if held == end { Ok(None) } else { Err("the stream ended early".to_owned()) }
        }
    })
}

async fn read<T: DeserializeOwned>(payload: &mut Payload, max: usize) -> Result<T> {
    let body = calls::read_body(payload, max).await.map_err(|error| match error {
        BodyError::TooLong => StorageError::InvalidArgument("The arguments are too long."),
        BodyError::Incomplete => StorageError::INPUT_FAILED,
    })?;
    parse(&body)
}

fn parse<T: DeserializeOwned>(arguments: &[u8]) -> Result<T> {
    serde_json::from_slice(arguments).map_err(|_| StorageError::InvalidArgument("The arguments are malformed."))
}

fn null() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

fn value(value: impl Serialize) -> HttpResponse {
    HttpResponse::Ok().json(value)
}

fn content((object, content): (StoredObject, Content)) -> HttpResponse {
    let object = json!(object).to_string();
    let object = utf8_percent_encode(&object, NON_ALPHANUMERIC).to_string();
    HttpResponse::Ok().insert_header((OBJECT_HEADER, object)).body(SizedStream::new(content.length, content.bytes))
}

const fn status(error: StorageError) -> StatusCode {
    match error {
        StorageError::InvalidKey(_) | StorageError::InvalidArgument(_) => StatusCode::BAD_REQUEST,
        StorageError::NotGranted => StatusCode::FORBIDDEN,
        StorageError::QuotaExceeded(_) | StorageError::TooManyObjects(_) | StorageError::Undeleted => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        StorageError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_are_limited() {
        for (sent, stored) in [(0, 0), (1, 1), (MAX_DELETED, 1000), (MAX_DELETED + 1, 1001), (1_000_000, 1001)] {
            let arguments = json!({ "keys": vec!["a"; sent] }).to_string();
            let Delete { keys } = parse(arguments.as_bytes()).unwrap();
            assert_eq!(keys, vec!["a"; stored], "{sent}");
        }
        for arguments in ["{}", r#"{ "keys": "a" }"#, r#"{ "keys": [1] }"#, r#"{ "keys": ["a"], "more": 1 }"#] {
            assert!(parse::<Delete>(arguments.as_bytes()).is_err(), "{arguments}");
        }
    }

    #[tokio::test]
    async fn stream_must_end_with_its_text() {
        let read = async |chunks: &[&'static str]| {
            let chunks = stream::iter(chunks.to_vec()).map(|chunk| Ok(Bytes::from_static(chunk.as_bytes())));
            let read: std::result::Result<Vec<Bytes>, String> =
                without_end(chunks, Bytes::from_static(b"end")).try_collect().await;
            read.map(|chunks| chunks.concat())
        };
        for (chunks, content) in [
            (&["contentend"][..], "content"),
            (&["con", "tent", "e", "n", "d"], "content"),
            (&["end"], ""),
            (&["e", "n", "dend"], "end"),
        ] {
            assert_eq!(read(chunks).await, Ok(content.as_bytes().to_vec()), "{chunks:?}");
        }
        for chunks in [&[][..], &["en"], &["content"], &["end", "x"], &["conten", "tend", "en"]] {
            assert!(read(chunks).await.is_err(), "{chunks:?}");
        }
    }
}
