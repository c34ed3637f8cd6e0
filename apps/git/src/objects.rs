//! Reads objects with `git cat-file`, whose memory is limited. git runs no filters.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::git::Git;

/// The maximum length of the line before an object: its id, its kind and its size.
const MAX_HEADER_BYTES: u64 = 256;

/// A reader of the objects of a repository.
pub struct ObjectReader {
    process: ReaderProcess,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The number of bytes of the current object that have not been read, including the line break after the object.
    rest: u64,
}

/// The git process of a reader.
#[derive(Clone)]
pub struct ReaderProcess(Arc<Mutex<Child>>);

/// The git process ended before it had sent an object. Unlike a missing object, this can have a transient cause, such
/// as a signal.
#[derive(Debug, thiserror::Error)]
#[error("git ended while it read an object")]
struct GitEnded;

/// The kind and the size of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// `commit`, `tree`, `blob` or `tag`.
    pub kind: String,
    pub size: u64,
}

impl ObjectReader {
    /// Starts the process.
    pub fn start(git: &Git, repository: &Path) -> anyhow::Result<Self> {
        let mut command = git.maintenance(Some(repository));
        command.args(["cat-file", "--batch"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start git")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            process: ReaderProcess(Arc::new(Mutex::new(child))),
            input: input.context("git has an input")?,
            output: BufReader::new(output.context("git has an output")?),
            rest: 0,
        })
    }

    /// Returns the process, so that another thread can kill it during a read.
    pub fn process(&self) -> ReaderProcess {
        self.process.clone()
    }

    /// Opens an object. Its content is read with [`Self::content`].
    pub fn open(&mut self, id: &str) -> io::Result<Object> {
        let skipped = io::copy(&mut (&mut self.output).take(self.rest), &mut io::sink())?;
        if skipped < self.rest {
            return Err(ended());
        }
        self.rest = 0;
        writeln!(self.input, "{id}").map_err(|_| ended())?;
        let mut line = String::new();
        (&mut self.output).take(MAX_HEADER_BYTES).read_line(&mut line)?;
        let header = line.strip_suffix('\n').ok_or_else(ended)?;
        let mut fields = header.split(' ').skip(1);
        let (Some(kind), Some(size)) = (fields.next(), fields.next().and_then(|size| size.parse().ok())) else {
            return Err(io::Error::other("git cannot read the object"));
        };
        self.rest = size + 1;
        Ok(Object { kind: kind.to_owned(), size })
    }

    /// Returns a reader of the rest of the opened object's content.
    pub fn content(&mut self) -> Content<'_> {
        Content(self)
    }

    /// Reads an object that must have this kind into memory.
    pub fn read(&mut self, id: &str, kind: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
        let object = self.open(id)?;
        if object.kind != kind {
            return Err(io::Error::other(format!("the object {id} is not a {kind}")));
        }
        if object.size > max_bytes {
            return Err(io::Error::other(format!("the {kind} is larger than {max_bytes} bytes")));
        }
        let mut content = Vec::new();
        self.content().read_to_end(&mut content)?;
        Ok(content)
    }
}

impl ReaderProcess {
    /// Ends the process.
    pub fn end(&self) {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The process may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.process.end();
    }
}

/// The content of an opened object.
pub struct Content<'a>(&'a mut ObjectReader);

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self(ObjectReader { output, rest, .. }) = self;
        // The last byte is the line break after the object.
        let read = output.take(rest.saturating_sub(1)).read(buffer)?;
        if read == 0 && *rest > 1 && !buffer.is_empty() {
            return Err(ended());
        }
        *rest -= read as u64;
        Ok(read)
    }
}

fn ended() -> io::Error {
    io::Error::other(GitEnded)
}

/// Returns whether an object could not be read because the process ended.
pub fn is_ended(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<GitEnded>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::{Repositories, Use};

    #[tokio::test]
    async fn missing_object_and_ended_process_are_distinguished() {
        let (_folder, repositories) = Repositories::temporary();
        let repository = repositories.open_or_create("rep_0000000000000001", "main", Use::Read).await.unwrap();
        let mut reader = ObjectReader::start(repositories.git(), &repository.path).unwrap();
        let id = "1".repeat(40);
        assert!(!is_ended(&reader.open(&id).unwrap_err()));
        reader.process().end();
        assert!(is_ended(&reader.open(&id).unwrap_err()));
    }
}
