//! The histories of branches and paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat};
use gix::ObjectId;
use gix::bstr::ByteSlice as _;
use gix::revision::walk::Sorting;
use gix::traverse::commit::simple::CommitTimeOrder;
use quick_cache::sync::Cache;

use super::limited_list::LimitedList;
use super::model::{Commit, Commits, Person};
use super::names::{components, unescape};
use super::{BrowseError, Browser, MAX_OBJECT_BYTES, Result, internal};
use crate::git::{Git, output};

/// The length to which commit messages are cut, in bytes of UTF-8.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// The length to which the names and addresses of persons are cut, in bytes of UTF-8.
const MAX_PERSON_BYTES: usize = 1024;
/// The maximum number of listed parents of a commit.
const MAX_PARENTS: usize = 1000;
/// The maximum number of cached histories. Each has at most 201 ids, and a path that fits into a URL.
const MAX_HISTORIES: usize = 2048;
/// The end of the year 9999, in seconds since the epoch.
const MAX_SECONDS: i64 = 253_402_300_799;

/// A cache of the commits that changed paths. For a path that few commits changed, git must read the whole history. The
/// entries depend only on the commit at which the history starts, so they do not become stale. Cheap to clone.
#[derive(Clone)]
pub struct Histories(Arc<Cache<History, Arc<[ObjectId]>>>);

/// The key of a cached history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct History {
    start: ObjectId,
    path: Vec<u8>,
    skip: u32,
    limit: usize,
}

/// Selects a part of a history.
#[derive(Debug)]
pub struct HistoryPart {
    /// The id of the commit at which the history starts, if it is not the one of the requested name.
    pub start: Option<String>,
    /// The number of skipped commits.
    pub skip: u32,
    /// The maximum number of commits.
    pub limit: usize,
}

impl Default for Histories {
    fn default() -> Self {
        Self(Arc::new(Cache::new(MAX_HISTORIES)))
    }
}

impl Browser {
    /// Returns commits of a history, newest first. If a path is given, returns only commits that changed it, even if the
    /// path was deleted or renamed since.
    pub fn commits(
        &self,
        git: &Git,
        Histories(cache): &Histories,
        name: &str,
        path: &str,
        part: HistoryPart,
    ) -> Result<Commits> {
        let HistoryPart { start, skip, limit } = part;
        let start = match start {
            Some(id) => {
                let id = ObjectId::from_hex(id.as_bytes()).map_err(|_| BrowseError::NoRef)?;
                self.peel(id)?.ok_or(BrowseError::NoRef)?
            }
            None => self.commit(name)?,
        };
        let (paths, is_present) = match self.find_in(start, path) {
            Ok(found) => (vec![found.raw], true),
            // Earlier commits may have the path. As in a directory, the literal path precedes the escaped one.
            Err(BrowseError::NoPath) => {
                let names = components(path).ok_or(BrowseError::NoPath)?;
                let raw = |name: &&str| unescape(name).unwrap_or_else(|| name.as_bytes().to_vec());
                let unescaped: Vec<_> = names.iter().map(raw).collect();
                (vec![names.join("/").into_bytes(), unescaped.join(&b'/')], false)
            }
            Err(error) => return Err(error),
        };
        let mut ids: Arc<[ObjectId]> = Arc::default();
        for path in paths {
            // One more commit shows whether the history continues.
            let history = History { start, path, skip, limit: limit.saturating_add(1) };
            ids = if history.path.is_empty() {
                self.newest(&history)?
            } else {
                cache.get_or_insert_with(&history, || self.changing(git, &history))?
            };
            if !ids.is_empty() {
                break;
            }
        }
        if ids.is_empty() && !is_present && skip == 0 {
            return Err(BrowseError::NoPath);
        }
        let mut items = LimitedList::new();
        for id in ids.iter().take(limit) {
            if !items.push(self.show(*id)?)? {
                break;
            }
        }
        let has_more = items.items.len() < ids.len();
        Ok(Commits { start: start.to_string(), items: items.items, has_more })
    }

    fn newest(&self, history: &History) -> Result<Arc<[ObjectId]>> {
        let sorting = Sorting::ByCommitTime(CommitTimeOrder::NewestFirst);
        let walk = self.repository.rev_walk([history.start]).sorting(sorting).all().map_err(internal)?;
        let skip = usize::try_from(history.skip).unwrap_or(usize::MAX);
        let mut ids = Vec::new();
        for (number, commit) in walk.take(skip.saturating_add(history.limit)).enumerate() {
            self.remaining()?;
            let id = commit.map_err(internal)?.id;
            if number >= skip {
                ids.push(id);
            }
        }
        Ok(ids.into())
    }

    /// Returns the commits that changed a path. Runs git for this, because git skips most commits with the filters in
    /// the commit-graph.
    fn changing(&self, git: &Git, History { start, path, skip, limit }: &History) -> Result<Arc<[ObjectId]>> {
        let mut command = git.maintenance(Some(self.repository.path()));
        command.arg("--literal-pathspecs").args([
            "rev-list",
            // git rejects larger numbers.
            &format!("--skip={}", (*skip).min(i32::MAX.unsigned_abs())),
            &format!("--max-count={limit}"),
            &start.to_string(),
            "--",
        ]);
        command.arg(OsStr::from_bytes(path));
        let listed = tokio::runtime::Handle::current().block_on(output(command, self.remaining()?))?;
        let ids = listed.lines().map(|line| ObjectId::from_hex(line).map_err(internal));
        ids.collect()
    }

    fn show(&self, id: ObjectId) -> Result<Commit> {
        let data = self.read(id, MAX_OBJECT_BYTES)?;
        let commit = gix::objs::CommitRef::from_bytes(&data, gix::hash::Kind::Sha1).map_err(internal)?;
        let encoding = commit.encoding.and_then(|label| encoding_rs::Encoding::for_label(label));
        let encoding = encoding.unwrap_or(encoding_rs::UTF_8);
        let decode = |text: &[u8], max: usize| {
            // No encoding has more than four bytes for one byte of UTF-8.
            let text = encoding.decode_without_bom_handling(text.get(..4 * max).unwrap_or(text)).0;
            text.split_at(text.floor_char_boundary(max)).0.to_owned()
        };
        let person = |signature: gix::actor::SignatureRef<'_>| {
            let seconds = signature.seconds().clamp(0, MAX_SECONDS);
            Person {
                name: decode(signature.name, MAX_PERSON_BYTES),
                email: decode(signature.email, MAX_PERSON_BYTES),
                at: DateTime::from_timestamp(seconds, 0)
                    .unwrap_or_default()
                    .to_rfc3339_opts(SecondsFormat::Millis, true),
            }
        };
        Ok(Commit {
            oid: id.to_string(),
            message: decode(commit.message, MAX_MESSAGE_BYTES),
            author: person(commit.author().map_err(internal)?),
            committer: person(commit.committer().map_err(internal)?),
            parents: commit.parents().take(MAX_PARENTS).map(|parent| parent.to_string()).collect(),
        })
    }
}
