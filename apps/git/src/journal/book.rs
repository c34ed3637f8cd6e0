//! The file of a repository in the journal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::git::Git;
use crate::hook::Update;

#[derive(Debug)]
pub(super) struct Book {
    path: PathBuf,
    /// The number of the last update that was removed from the journal. The first update has the next number.
    pub(super) after: i64,
    pub(super) transactions: Vec<Transaction>,
    file: Option<File>,
    /// The bytes of the file that are complete lines.
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
    /// The outcome of the last transaction of a push without one.
    Ended {
        push: String,
        is_committed: bool,
    },
    /// The refs that a push changed in its first transaction without an outcome.
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
            // A crash can leave the last line incomplete. Its transaction was not confirmed, so git did not continue
            // it.
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

    /// Appends a line. After an error, the file is as before.
    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
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
        let append = |file: &mut File| {
            if is_new {
                file.set_len(0)?;
            }
            file.write_all(&text)?;
            file.sync_data()?;
            if is_new && let Some(directory) = self.path.parent() {
                File::open(directory)?.sync_all()?;
            }
            Ok::<_, io::Error>(())
        };
        let length = if is_new { 0 } else { self.length };
        if let Err(error) = append(&mut file) {
            if is_new {
                fs::remove_file(&self.path)?;
            } else {
                // Without the file, the next line would begin a new one. So the incomplete line must go.
                file.set_len(length)?;
                self.file = Some(file);
            }
            return Err(error.into());
        }
        (self.file, self.length) = (Some(file), length + u64::try_from(text.len())?);
        Ok(())
    }

    pub(super) fn append(&mut self, transaction: Transaction) -> anyhow::Result<()> {
        self.write(&Line::Prepared(transaction.clone()))?;
        self.transactions.push(transaction);
        Ok(())
    }

    /// Records the end of the transaction of the push that has these updates. This is a no-op if the journal does not
    /// contain such a transaction. The transaction was then never recorded, and git aborts it.
    pub(super) fn end(&mut self, push: &str, updates: &[Update], is_committed: bool) -> anyhow::Result<()> {
        let is_ended = |it: &Transaction| it.is_open(push) && it.updates == updates;
        let Some(index) = self.transactions.iter().rposition(is_ended) else { return Ok(()) };
        self.write(&Line::Ended { push: push.to_owned(), is_committed })?;
        if let Some(ended) = self.transactions.get_mut(index) {
            ended.outcome = Some(is_committed);
        }
        Ok(())
    }

    /// Decides about the transactions without an outcome: those of one push, or of all pushes for `None`. An update
    /// took effect if the ref has its new value, or if a later update replaced that value. git changes the refs of a
    /// transaction one by one, so it may have changed only some of them.
    pub(super) fn resolve(&mut self, git: &Git, repository: &Path, push: Option<&str>) -> anyhow::Result<()> {
        for index in 0..self.transactions.len() {
            let (before, after) = self.transactions.split_at(index + 1);
            let Some(transaction) = before.last() else { continue };
            if transaction.outcome.is_some() || push.is_some_and(|push| transaction.push != push) {
                continue;
            }
            let mut committed = Vec::new();
            for update in &transaction.updates {
                let later = after.iter().flat_map(|it| &it.updates).find(|later| later.name == update.name);
                let current = match later {
                    Some(later) => later.old.clone(),
                    None => read_ref(git, repository, &update.name)?,
                };
                if current == update.new {
                    committed.push(update.name.clone());
                }
            }
            let push = transaction.push.clone();
            self.write(&Line::Resolved { push, committed: committed.clone() })?;
            if let Some(transaction) = self.transactions.get_mut(index) {
                transaction.resolve(&committed);
            }
        }
        Ok(())
    }

    /// The transactions before the first one without an outcome.
    pub(super) fn decided(&self) -> Vec<Transaction> {
        self.transactions.iter().take_while(|transaction| transaction.outcome.is_some()).cloned().collect()
    }

    /// Removes the first transactions. `after` is the number of their last update.
    pub(super) fn forget(&mut self, count: usize, after: i64) -> anyhow::Result<()> {
        self.transactions.drain(..count);
        self.after = after;
        if self.transactions.is_empty() {
            self.file = None;
            fs::remove_file(&self.path)?;
            return Ok(());
        }
        // The file is replaced as a whole: a line cannot be removed. Temporary files are not in the folder of the
        // journal.
        let folder = self.path.parent().and_then(Path::parent).context("the journal has a directory")?.join("new");
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
        Ok(())
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

/// The object of a ref; `None` if the ref does not exist.
pub(super) fn read_ref(git: &Git, repository: &Path, name: &str) -> anyhow::Result<Option<String>> {
    if !repository.is_dir() {
        return Ok(None);
    }
    let mut command = git.maintenance(Some(repository));
    let output =
        command.args(["for-each-ref", "--format=%(objectname) %(refname)", name]).stdout(Stdio::piped()).output()?;
    ensure!(output.status.success(), "git for-each-ref failed: {}", output.status);
    let listed = String::from_utf8(output.stdout)?;
    let mut refs = listed.lines().filter_map(|line| line.split_once(' '));
    Ok(refs.find_map(|(object, found)| (found == name).then(|| object.to_owned())))
}
