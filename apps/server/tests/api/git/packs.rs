//! Packs that no git writes, and the requests that push them (gitformat-pack(5), gitprotocol-pack(5)).

use std::io::Write as _;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::Kit;
use crate::support::client;

pub const COMMIT: u8 = 1;
pub const TREE: u8 = 2;
pub const BLOB: u8 = 3;
const OFS_DELTA: u8 = 6;
pub const REF_DELTA: u8 = 7;
/// The longest copy of one instruction of a delta, in bytes.
const MAX_COPY: usize = 0xff_ff_ff;

/// A pack that is being built.
pub struct Pack {
    bytes: Vec<u8>,
    last: usize,
    /// The id of the last object that is not a delta.
    id: String,
}

impl Pack {
    /// Starts a pack whose header names this number of objects.
    pub fn new(objects: u32) -> Self {
        Self { bytes: [b"PACK\0\0\0\x02".as_slice(), &objects.to_be_bytes()].concat(), last: 0, id: "1".repeat(40) }
    }

    /// Adds bytes as they are.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds an object whose header names this size.
    pub fn sized(mut self, kind: u8, size: u64, compressed: &[u8]) -> Self {
        self.last = self.bytes.len();
        self.bytes.extend(header(kind, size));
        self.raw(compressed)
    }

    pub fn object(mut self, kind: u8, contents: &[u8]) -> Self {
        let name = ["commit", "tree", "blob"][usize::from(kind) - 1];
        self.id = hex(&id(name, contents));
        self.sized(kind, contents.len() as u64, &deflate(contents))
    }

    /// Adds a delta against the previous object.
    pub fn delta(self, delta: &[u8]) -> Self {
        let distance = self.bytes.len() - self.last;
        self.delta_at(distance, delta)
    }

    /// Adds a delta against the object that begins this number of bytes before.
    pub fn delta_at(mut self, distance: usize, delta: &[u8]) -> Self {
        self.last = self.bytes.len();
        self.bytes.extend(header(OFS_DELTA, delta.len() as u64));
        let (mut rest, mut offset) = (distance >> 7, vec![(distance & 0x7f) as u8]);
        while rest > 0 {
            rest -= 1;
            offset.push(0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        offset.reverse();
        self.bytes.extend(offset);
        self.raw(&deflate(delta))
    }

    /// Adds a delta against the object with this id.
    pub fn ref_delta(mut self, base: &[u8; 20], delta: &[u8]) -> Self {
        self.last = self.bytes.len();
        self.bytes.extend(header(REF_DELTA, delta.len() as u64));
        self.raw(base).raw(&deflate(delta))
    }

    /// Returns the pack with its checksum, and the id of its last object that is not a delta.
    pub fn finish(mut self) -> (Vec<u8>, String) {
        let checksum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.bytes);
        self.bytes.extend_from_slice(checksum.as_ref());
        (self.bytes, self.id)
    }
}

fn header(kind: u8, mut size: u64) -> Vec<u8> {
    let mut byte = kind << 4 | (size & 15) as u8;
    size >>= 4;
    let mut bytes = Vec::new();
    while size > 0 {
        bytes.push(byte | 0x80);
        byte = (size & 0x7f) as u8;
        size >>= 7;
    }
    bytes.push(byte);
    bytes
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

pub fn deflate(contents: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

/// Returns a compressed stream with this number of MiB of zeros. It repeats one part, so it is created quickly.
pub fn deflated_zeros(mebibytes: usize) -> Vec<u8> {
    let part = {
        let mut raw = flate2::Compress::new(flate2::Compression::best(), false);
        let mut part = Vec::with_capacity(64 * 1024);
        raw.compress_vec(&vec![0; 1 << 20], &mut part, flate2::FlushCompress::Full).unwrap();
        part
    };
    let length = mebibytes << 20;
    let adler = u32::try_from(length % 65521).unwrap() << 16 | 1;
    [b"\x78\x9c".to_vec(), part.repeat(mebibytes), b"\x01\0\0\xff\xff".to_vec(), adler.to_be_bytes().to_vec()].concat()
}

/// Returns a delta with these sizes and these instructions.
pub fn delta(base: u64, result: u64, instructions: &[u8]) -> Vec<u8> {
    [varint(base), varint(result), instructions.to_vec()].concat()
}

/// Returns a delta that repeats its whole base.
pub fn repeat(base: usize, times: usize) -> Vec<u8> {
    let mut instructions = Vec::new();
    for _ in 0..times {
        let mut offset = 0;
        while offset < base {
            let length = (base - offset).min(MAX_COPY);
            instructions.push(0xff);
            instructions.extend_from_slice(&u32::try_from(offset).unwrap().to_le_bytes());
            instructions.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes()[..3]);
            offset += length;
        }
    }
    delta(base as u64, (base * times) as u64, &instructions)
}

/// Returns the id of an object.
pub fn id(kind: &str, contents: &[u8]) -> [u8; 20] {
    let object = [format!("{kind} {}\0", contents.len()).as_bytes(), contents].concat();
    digest(&SHA1_FOR_LEGACY_USE_ONLY, &object).as_ref().try_into().unwrap()
}

pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the packet of a command that creates a ref.
pub fn create(new: &str, name: &[u8], is_first: bool) -> Vec<u8> {
    let capabilities: &[u8] = if is_first { b"\0report-status delete-refs atomic" } else { b"" };
    let command = [format!("{} {new} ", "0".repeat(40)).as_bytes(), name, capabilities].concat();
    [format!("{:04x}", command.len() + 4).as_bytes(), &command].concat()
}

/// Pushes these bytes. Returns what the server reports.
pub async fn push(kit: &Kit, token: &str, body: Vec<u8>) -> String {
    let url = format!("http://127.0.0.1:{}/ada/site/app.git/git-receive-pack", kit.node.http);
    let request = client().post(url).basic_auth("git", Some(token)).body(body);
    let request = request.header("content-type", "application/x-git-receive-pack-request");
    let response = request.timeout(std::time::Duration::from_secs(240)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    // The server may end the response early.
    let report = response.bytes().await.unwrap_or_default();
    String::from_utf8_lossy(&report).into_owned()
}
