//! A writer of [Cap'n Proto messages](https://capnproto.org/encoding.html), as far as the configuration of `workerd`
//! needs it.
//!
//! In a message, the contents of files follow all other objects. They can therefore be copied from the files while the
//! message is written, and are never in memory as a whole.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::digest::Digest;

const WORD: usize = 8;

/// A struct. Its data section is always one word: a reader uses defaults for missing words, and ignores others.
pub struct Struct<'a> {
    pub data: u64,
    pub pointers: Vec<Pointer<'a>>,
}

/// The target of a pointer.
pub enum Pointer<'a> {
    Null,
    Text(Cow<'a, str>),
    Texts(Vec<Cow<'a, str>>),
    /// The content of a blob, as `Text` or `Data`.
    Blob(BlobContent),
    Struct(Struct<'a>),
    Structs(Vec<Struct<'a>>),
}

/// A stored blob whose content is a part of the message.
#[derive(Clone, Copy)]
pub struct BlobContent {
    pub content: Digest,
    pub size: u64,
    /// Whether a NUL byte follows the content.
    pub is_text: bool,
}

/// A message of one segment. It may contain secrets.
pub struct Message {
    /// The message up to the contents of the blobs.
    head: Vec<u8>,
    blobs: Vec<BlobContent>,
}

/// The element sizes of lists.
#[derive(Clone, Copy)]
enum Elements {
    Bytes = 2,
    Pointers = 6,
    Structs = 7,
}

impl Message {
    /// Encodes a message. Fails only if it is too large for the format.
    pub fn new(root: Struct<'_>) -> anyhow::Result<Self> {
        let mut encoder = Encoder::default();
        let at = encoder.allocate(1);
        encoder.pointer(at, Pointer::Struct(root))?;
        let Encoder { mut words, blobs } = encoder;
        let mut end = words.len() / WORD;
        for (at, blob) in &blobs {
            let length = usize::try_from(blob.length())?;
            set(&mut words, *at, list(*at, end, Elements::Bytes, length)?);
            end += length.div_ceil(WORD);
        }
        // The framing: the number of segments minus one, and the size of the segment.
        let mut head = vec![0; WORD];
        set(&mut head, 0, u64::from(u32::try_from(end)?) << 32);
        head.append(&mut words);
        Ok(Self { head, blobs: blobs.into_iter().map(|(_, blob)| blob).collect() })
    }

    /// Writes the message. `path` finds the files of the blobs.
    pub async fn write(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        path: impl Fn(Digest) -> PathBuf,
    ) -> anyhow::Result<()> {
        to.write_all(&self.head).await?;
        for blob in &self.blobs {
            let mut content = File::open(path(blob.content)).await?.take(blob.size);
            let copied = tokio::io::copy(&mut content, to).await?;
            ensure!(copied == blob.size, "{} has {copied} bytes instead of {}", blob.content, blob.size);
            let padding = blob.length().next_multiple_of(WORD as u64) - blob.size;
            to.write_all([0; WORD + 1].get(..usize::try_from(padding)?).unwrap_or_default()).await?;
        }
        Ok(())
    }
}

impl BlobContent {
    /// Returns the number of bytes in the message, without padding.
    const fn length(&self) -> u64 {
        self.size + self.is_text as u64
    }
}

/// A segment, without the contents of the blobs. A position is the number of a word.
#[derive(Default)]
struct Encoder {
    words: Vec<u8>,
    /// The blobs with the positions of their pointers.
    blobs: Vec<(usize, BlobContent)>,
}

impl Encoder {
    /// Appends zeroed words, and returns the position of the first one.
    fn allocate(&mut self, words: usize) -> usize {
        let at = self.words.len();
        self.words.resize(at + words * WORD, 0);
        at / WORD
    }

    fn pointer(&mut self, at: usize, to: Pointer<'_>) -> anyhow::Result<()> {
        let pointer = match to {
            Pointer::Null => return Ok(()),
            Pointer::Blob(blob) => {
                self.blobs.push((at, blob));
                return Ok(());
            }
            Pointer::Text(text) => {
                let target = self.words.len() / WORD;
                self.words.extend_from_slice(text.as_bytes());
                self.words.push(0);
                self.words.resize(self.words.len().next_multiple_of(WORD), 0);
                list(at, target, Elements::Bytes, text.len() + 1)?
            }
            Pointer::Texts(texts) => {
                let (count, target) = (texts.len(), self.allocate(texts.len()));
                for (number, text) in texts.into_iter().enumerate() {
                    self.pointer(target + number, Pointer::Text(text))?;
                }
                list(at, target, Elements::Pointers, count)?
            }
            Pointer::Struct(object) => {
                let pointers = object.pointers.len();
                let target = self.allocate(1 + pointers);
                self.object(target, object)?;
                offset(at, target)? | shape(pointers)?
            }
            Pointer::Structs(objects) => {
                let pointers = objects.iter().map(|object| object.pointers.len()).max().unwrap_or_default();
                let (count, size) = (objects.len(), 1 + pointers);
                let target = self.allocate(1 + count * size);
                set(&mut self.words, target, u64::from(u32::try_from(count)?) << 2 | shape(pointers)?);
                for (number, object) in objects.into_iter().enumerate() {
                    self.object(target + 1 + number * size, object)?;
                }
                list(at, target, Elements::Structs, count * size)?
            }
        };
        set(&mut self.words, at, pointer);
        Ok(())
    }

    fn object(&mut self, at: usize, object: Struct<'_>) -> anyhow::Result<()> {
        set(&mut self.words, at, object.data);
        object.pointers.into_iter().zip(at + 1..).try_for_each(|(pointer, at)| self.pointer(at, pointer))
    }
}

fn set(words: &mut [u8], at: usize, word: u64) {
    if let Some(bytes) = words.get_mut(at * WORD..(at + 1) * WORD) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Returns the position of the target, relative to the word after the pointer.
fn offset(at: usize, target: usize) -> anyhow::Result<u64> {
    let words = u32::try_from(target - at - 1).ok().filter(|words| *words < 1 << 29);
    Ok(u64::from(words.context("the message is too large")?) << 2)
}

fn list(at: usize, target: usize, elements: Elements, count: usize) -> anyhow::Result<u64> {
    let count = u32::try_from(count).ok().filter(|count| *count < 1 << 29);
    let count = u64::from(count.context("the message is too large")?);
    Ok(offset(at, target)? | 1 | (elements as u64) << 32 | count << 35)
}

/// Returns the word with the sizes of the sections of a struct.
fn shape(pointers: usize) -> anyhow::Result<u64> {
    Ok(1 << 32 | u64::from(u16::try_from(pointers)?) << 48)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words of a message, after its framing.
    async fn words(root: Struct<'_>, path: PathBuf) -> Vec<u64> {
        let mut written = Vec::new();
        Message::new(root).unwrap().write(&mut written, |_| path.clone()).await.unwrap();
        let mut words = written.chunks_exact(WORD).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let framing = words.next().unwrap();
        let words: Vec<u64> = words.collect();
        assert_eq!((written.len() % WORD, framing), (0, (words.len() as u64) << 32));
        words
    }

    fn text(text: &str) -> u64 {
        let mut word = [0; WORD];
        word[..text.len()].copy_from_slice(text.as_bytes());
        u64::from_le_bytes(word)
    }

    #[tokio::test]
    async fn objects_are_encoded_as_specified() {
        let file = std::env::temp_dir().join(format!("svc-capnp-{}", std::process::id()));
        std::fs::write(&file, "12345678").unwrap();
        let blob = |is_text| BlobContent { content: Digest::of(b""), size: 8, is_text };
        let item = |data, pointers| Struct { data, pointers };
        let items = vec![item(5, vec![Pointer::Text("b".into())]), item(6, Vec::new())];
        let root = item(
            3,
            vec![
                Pointer::Text("1234567".into()),
                Pointer::Null,
                Pointer::Blob(blob(true)),
                Pointer::Texts(vec!["a".into()]),
                Pointer::Structs(items),
                Pointer::Blob(blob(false)),
            ],
        );
        let bytes = |offset: u64, count: u64| offset << 2 | 1 | 2 << 32 | count << 35;
        let expected = [
            // A struct of one data word and six pointers.
            1 << 32 | 6 << 48,
            3,
            bytes(5, 8),
            0,
            bytes(12, 9),
            // A list of one pointer.
            3 << 2 | 1 | 6 << 32 | 1 << 35,
            // A list of structs with four words.
            4 << 2 | 1 | 7 << 32 | 4 << 35,
            bytes(11, 8),
            text("1234567"),
            bytes(0, 2),
            text("a"),
            // Two structs of one data word and one pointer.
            2 << 2 | 1 << 32 | 1 << 48,
            5,
            bytes(2, 2),
            6,
            0,
            text("b"),
            text("12345678"),
            0,
            text("12345678"),
        ];
        assert_eq!(words(root, file.clone()).await, expected);
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn file_of_another_size_is_an_error() {
        let file = std::env::temp_dir().join(format!("svc-capnp-short-{}", std::process::id()));
        std::fs::write(&file, "1").unwrap();
        let blob = BlobContent { content: Digest::of(b"1"), size: 2, is_text: false };
        let message = Message::new(Struct { data: 0, pointers: vec![Pointer::Blob(blob)] }).unwrap();
        let error = message.write(&mut Vec::new(), |_| file.clone()).await.unwrap_err();
        assert!(error.to_string().ends_with("has 1 bytes instead of 2"), "{error}");
        std::fs::remove_file(file).unwrap();
    }
}
