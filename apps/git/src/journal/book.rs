//! The file of a repository in the journal.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::git::Git;
use crate::sync;
use crate::update::Update;

/// The maximum number of refs that are read with one git process. The system limits the length of its arguments.
pub(super) const MAX_NAMES: usize = 200;

#[derive(Debug)]
pub(super) struct Book {
    path: PathBuf,
    /// The number of the last update that was removed from the journal. The next number belongs to the first update in
    /// the file.
    pub(super) after: i64,
    pub(super) transactions: Vec<Transaction>,
    file: Option<File>,
    /// The number of bytes in the file's complete lines.
    length: u64,
}

/// A transaction of refs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transaction {
    pub(super) push: String,
    pub(super) pusher: Option<String>,
    #[serde(default)]
    pub(super) credential: Option<String>,
    pub(super) at: String,
    pub(super) updates: Vec<Update>,
    /// Whether the transaction took effect; `None` if that is not known yet.
    #[serde(skip)]
    pub(super) outcome: Option<bool>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    /// The first line.
    After(i64),
    Prepared(Transaction),
    /// The outcome of the push's last transaction that has none yet.
    Ended {
        push: String,
        is_committed: bool,
    },
    /// The refs that changed in the push's first transaction that has no outcome yet.
    Resolved {
        push: String,
        committed: Vec<String>,
    },
}

impl Book {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, after: 0, transactions: Vec::new(), file: None, length: 0 }
    }

    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let mut book = Self::new(path.to_owned());
        let text = fs::read(path)?;
        let (mut lines, mut length) = (text.split_inclusive(|byte| *byte == b'\n').peekable(), 0);
        while let Some(line) = lines.next() {
            // A crash can leave the last line incomplete. The node did not confirm its transaction, so git did not
            // execute it.
            match serde_json::from_slice(line).ok().filter(|_| line.ends_with(b"\n")) {
                Some(Line::After(after)) => book.after = after,
                Some(Line::Prepared(transaction)) => book.transactions.push(transaction),
                Some(Line::Ended { push, is_committed }) => {
                    if let Some(open) = book.transactions.iter_mut().rev().find(|it| it.is_open(&push)) {
                        open.outcome = Some(is_committed);
                    }
                }
                Some(Line::Resolved { push, committed }) => {
                    if let Some(open) = book.transactions.iter_mut().find(|it| it.is_open(&push)) {
                        open.resolve(&committed);
                    }
                }
                None => {
                    ensure!(lines.peek().is_none(), "line {} is malformed", book.transactions.len());
                    break;
                }
            }
            length += u64::try_from(line.len())?;
        }
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(length)?;
        (book.file, book.length) = (Some(file), length);
        Ok(book)
    }

    /// Appends a line, and syncs it together with these folders of refs. After an error, the file is unchanged, or the
    /// next call restores it.
    fn write(&mut self, line: &Line, folders: &[PathBuf]) -> anyhow::Result<()> {
        let mut text = Vec::new();
        let is_new = self.file.is_none();
        if is_new {
            encode(&Line::After(self.after), &mut text)?;
        }
        encode(line, &mut text)?;
        let mut file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().create(true).append(true).open(&self.path)?,
        };
        let length = if is_new { 0 } else { self.length };
        let mut files = vec![self.path.clone()];
        if is_new {
            files.extend(self.path.parent().map(Path::to_owned));
        }
        let append = |file: &mut File| {
            file.set_len(length)?;
            file.write_all(&text)?;
            if is_new || !folders.is_empty() { sync::with_ref_folders(&files, folders) } else { file.sync_data() }
        };
        if let Err(error) = append(&mut file) {
            if is_new {
                fs::remove_file(&self.path)?;
            } else {
                // Removes the incomplete line. The file stays open even if this fails, because the next write would
                // otherwise begin a new file.
                let restored = file.set_len(length);
                self.file = Some(file);
                restored?;
            }
            return Err(error.into());
        }
        (self.file, self.length) = (Some(file), length + u64::try_from(text.len())?);
        Ok(())
    }

    pub(super) fn append(&mut self, transaction: Transaction) -> anyhow::Result<()> {
        self.write(&Line::Prepared(transaction.clone()), &[])?;
        self.transactions.push(transaction);
        Ok(())
    }

    /// Records the end of the push's transaction that has these updates, and syncs the changes of the refs. This is a
    /// no-op if the journal has no such transaction: it was then never recorded, and git aborts it.
    pub(super) fn end(
        &mut self,
        repository: &Path,
        push: &str,
        updates: &[Update],
        is_committed: bool,
    ) -> anyhow::Result<()> {
        let is_ended = |it: &Transaction| it.is_open(push) && it.updates == updates;
        let Some(index) = self.transactions.iter().rposition(is_ended) else { return Ok(()) };
        let changed = if is_committed { updates } else { &[] };
        let folders = sync::ref_folders(repository, changed.iter().map(|update| update.name.as_str()));
        self.write(&Line::Ended { push: push.to_owned(), is_committed }, &folders)?;
        if let Some(ended) = self.transactions.get_mut(index) {
            ended.outcome = Some(is_committed);
        }
        Ok(())
    }

    /// Determines the outcome of the transactions that have none: those of one push, or all of them if `push` is
    /// `None`. An update took effect if the ref has its new value, or if a later update replaced that value. git
    /// changes the refs of a transaction one by one, so after a crash only some of them may have changed.
    pub(super) fn resolve(&mut self, git: &Git, repository: &Path, push: Option<&str>) -> anyhow::Result<()> {
        for index in 0..self.transactions.len() {
            let (before, after) = self.transactions.split_at(index + 1);
            let Some(transaction) = before.last() else { continue };
            if transaction.outcome.is_some() || push.is_some_and(|push| transaction.push != push) {
                continue;
            }
            let current = read_refs(git, repository, transaction.updates.iter().map(|it| it.name.as_str()))?;
            let took_effect = |update: &&Update| {
                let later = after.iter().flat_map(|it| &it.updates).find(|later| later.name == update.name);
                let next = later.map_or_else(|| current.get(&update.name), |later| later.old.as_ref());
                next == update.new.as_ref()
            };
            let committed: Vec<_> = transaction.updates.iter().filter(took_effect).map(|it| it.name.clone()).collect();
            let folders = sync::ref_folders(repository, committed.iter().map(String::as_str));
            let push = transaction.push.clone();
            self.write(&Line::Resolved { push, committed: committed.clone() }, &folders)?;
            if let Some(transaction) = self.transactions.get_mut(index) {
                transaction.resolve(&committed);
            }
        }
        Ok(())
    }

    /// Returns the user of the next transaction to deliver; `None` if there is no transaction. The text is empty if the
    /// control plane did not state the user.
    pub(super) fn next_pusher(&self) -> Option<String> {
        self.transactions.first().map(|next| next.pusher.clone().unwrap_or_default())
    }

    /// Returns the transactions before the first one without an outcome.
    pub(super) fn decided(&self) -> Vec<Transaction> {
        self.transactions.iter().take_while(|transaction| transaction.outcome.is_some()).cloned().collect()
    }

    /// Removes the first `count` transactions. `after` is the number of their last update.
    pub(super) fn forget(&mut self, count: usize, after: i64) -> anyhow::Result<()> {
        self.transactions.drain(..count);
        self.after = after;
        let journal = self.path.parent().context("the journal has a directory")?;
        if self.transactions.is_empty() {
            self.file = None;
            fs::remove_file(&self.path)?;
            return Ok(sync::all(&[journal.to_owned()])?);
        }
        // The file is replaced as a whole, because a line cannot be removed. Temporary files are outside the folder of
        // the journal.
        let folder = journal.parent().context("the journal has a parent directory")?.join("new");
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        let mut text = Vec::new();
        encode(&Line::After(after), &mut text)?;
        for transaction in &self.transactions {
            encode(&Line::Prepared(transaction.clone()), &mut text)?;
            if let Some(is_committed) = transaction.outcome {
                encode(&Line::Ended { push: transaction.push.clone(), is_committed }, &mut text)?;
            }
        }
        new.write_all(&text)?;
        new.as_file().sync_data()?;
        let file = new.persist(&self.path)?;
        (self.file, self.length) = (Some(file), u64::try_from(text.len())?);
        Ok(sync::all(&[journal.to_owned()])?)
    }
}

impl Transaction {
    fn is_open(&self, push: &str) -> bool {
        self.push == push && self.outcome.is_none()
    }

    /// Keeps only the updates of these refs.
    fn resolve(&mut self, committed: &[String]) {
        self.updates.retain(|update| committed.contains(&update.name));
        self.outcome = Some(true);
    }
}

/// Appends a line to a text.
fn encode(line: &Line, text: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

/// Returns the object ids of those of these refs that exist.
pub(super) fn read_refs<'a>(
    git: &Git,
    repository: &Path,
    names: impl IntoIterator<Item = &'a str>,
) -> anyhow::Result<HashMap<String, String>> {
    let mut found = HashMap::new();
    if !repository.is_dir() {
        return Ok(found);
    }
    let names: Vec<&str> = names.into_iter().collect();
    for names in names.chunks(MAX_NAMES) {
        let mut command = git.maintenance(Some(repository));
        command.args(["for-each-ref", "--format=%(objectname) %(refname)", "--"]).args(names).stdout(Stdio::piped());
        let output = command.output()?;
        ensure!(output.status.success(), "git for-each-ref failed: {}", output.status);
        let listed = String::from_utf8(output.stdout)?;
        // A name is a pattern for git, which can match further refs.
        let refs = listed.lines().filter_map(|line| line.split_once(' ')).filter(|(_, name)| names.contains(name));
        found.extend(refs.map(|(object, name)| (name.to_owned(), object.to_owned())));
    }
    Ok(found)
}
