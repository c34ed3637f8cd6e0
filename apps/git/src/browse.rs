//! Browsing: reads the contents of a repository for the control plane (contract section 10).

mod model;
mod names;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use chrono::{DateTime, SecondsFormat};
use gix::bstr::ByteSlice as _;
use gix::object::Kind;
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryKind;
use gix::revision::walk::Sorting;
use gix::traverse::commit::simple::CommitTimeOrder;
use gix::{ObjectId, Repository};
use quick_cache::sync::Cache;
use serde::Serialize;

use self::names::{components, escape, unescape};
use crate::git::{Git, output};

pub use self::model::{Blob, Commit, Commits, Entry, Person, Refs, Target, Tree};

/// The maximum number of entries of a directory that are listed (specification, "Limits").
const MAX_ENTRIES: usize = 1000;
/// The maximum size of a file that is read, in bytes.
const MAX_BLOB_BYTES: u64 = 1 << 20;
/// A file is binary if its first 8,000 bytes contain a NUL.
const BINARY_PREFIX_BYTES: usize = 8000;
/// The maximum size of a directory or commit object that is read, in bytes.
const MAX_OBJECT_BYTES: u64 = 32 << 20;
/// The length to which commit messages are cut, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// The length to which the names and addresses of persons are cut, in bytes.
const MAX_PERSON_BYTES: usize = 1024;
/// The maximum number of listed parents of a commit.
const MAX_PARENTS: usize = 1000;
/// The maximum number of branches in a response, and of tags. If there are more, the first ones in the order of their
/// names are listed.
const MAX_REFS: usize = 50_000;
/// The maximum length of a list in a response, as JSON, in bytes. The control plane refuses larger responses.
const MAX_LIST_BYTES: usize = 8 << 20;
/// The maximum duration of a walk through a history.
const MAX_WALK: Duration = Duration::from_secs(5);
/// The maximum number of cached histories. Each has at most 201 ids, and a path that fits into a URL.
const MAX_HISTORIES: usize = 2048;
/// The minimum length of an abbreviated commit id.
const MIN_ID_CHARACTERS: usize = 7;
/// The end of the year 9999, in seconds since the epoch.
const MAX_SECONDS: i64 = 253_402_300_799;

/// The reason why a browse request fails.
#[derive(Debug, thiserror::Error)]
pub enum BrowseError {
    #[error("no such branch, tag or commit")]
    NoRef,
    #[error("no such path")]
    NoPath,
    #[error(transparent)]
    Internal(#[from] anyhow::Error),
}

type Result<T> = std::result::Result<T, BrowseError>;

/// A repository that is open for browsing.
pub struct Browser {
    repository: Repository,
}

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
#[derive(Debug, Clone, Default)]
pub struct HistoryPart {
    /// The id of the commit at which the history starts, if it is not the one of the requested name.
    pub start: Option<String>,
    /// The number of skipped commits.
    pub skip: u32,
    /// The maximum number of commits.
    pub limit: usize,
}

/// The items of a list, limited in the length of their JSON.
struct LimitedList<T> {
    items: Vec<T>,
    bytes: usize,
}

impl<T: Serialize> LimitedList<T> {
    const fn new() -> Self {
        Self { items: Vec::new(), bytes: 0 }
    }

    /// Adds an item. Returns false if it does not fit.
    fn push(&mut self, item: T) -> Result<bool> {
        self.bytes += serde_json::to_vec(&item).map_err(internal)?.len() + 1;
        let fits = self.bytes <= MAX_LIST_BYTES;
        if fits {
            self.items.push(item);
        }
        Ok(fits)
    }
}

impl Default for Histories {
    fn default() -> Self {
        Self(Arc::new(Cache::new(MAX_HISTORIES)))
    }
}

/// A file or directory of a commit.
struct Found {
    commit: ObjectId,
    /// The path in its escaped form.
    path: String,
    /// The path as git stores it.
    raw: Vec<u8>,
    oid: ObjectId,
    kind: EntryKind,
}

fn internal(error: impl std::error::Error + Send + Sync + 'static) -> BrowseError {
    BrowseError::Internal(error.into())
}

impl Browser {
    /// Ignores the configuration of the system and of users, and the environment.
    pub fn open(path: &std::path::Path) -> Result<Self> {
        // Clients see the objects themselves, not their replacements (git-replace(1)). The second setting limits the
        // memory for the base objects of deltas.
        let overrides = ["core.useReplaceRefs=false", "gitoxide.objects.allocLimit=67108864"];
        let options = gix::open::Options::isolated().open_path_as_is(true).config_overrides(overrides);
        let mut repository = gix::open_opts(path, options).map_err(internal)?;
        repository.object_cache_size(4 << 20);
        Ok(Self { repository })
    }

    /// Returns the branches and tags. Omits tags that point to other objects than commits.
    pub fn refs(&self) -> Result<Refs> {
        Ok(Refs { branches: self.targets("refs/heads/")?, tags: self.targets("refs/tags/")? })
    }

    fn targets(&self, prefix: &str) -> Result<Vec<Target>> {
        let platform = self.repository.references().map_err(internal)?;
        let mut targets = LimitedList::new();
        for reference in platform.prefixed(prefix).map_err(internal)?.take(MAX_REFS) {
            let reference = reference.map_err(|error| BrowseError::Internal(anyhow!(error.to_string())))?;
            let name = reference.name().as_bstr();
            let name = escape(name.strip_prefix(prefix.as_bytes()).unwrap_or(name).as_bstr());
            let Some(id) = reference.try_id() else { continue };
            let Some(commit) = self.peel(id.detach()) else { continue };
            if !targets.push(Target { name, commit: commit.to_string() })? {
                break;
            }
        }
        targets.items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(targets.items)
    }

    /// Returns the commit that an object is, or to which a tag object points.
    fn peel(&self, id: ObjectId) -> Option<ObjectId> {
        let header = self.repository.find_header(id).ok()?;
        match header.kind() {
            Kind::Commit => Some(id),
            Kind::Tag if header.size() <= MAX_OBJECT_BYTES => {
                let commit = self.repository.find_object(id).ok()?.peel_to_kind(Kind::Commit).ok()?;
                Some(commit.id)
            }
            _ => None,
        }
    }

    /// Returns the commit of a name: the branch with this name, otherwise the tag, otherwise the commit with this id.
    fn commit(&self, name: &str) -> Result<ObjectId> {
        for prefix in ["refs/heads/", "refs/tags/"] {
            let full = format!("{prefix}{name}");
            // An error means that no ref can have this name.
            let Ok(found) = self.repository.try_find_reference(full.as_str()) else { continue };
            if let Some(id) = found.as_ref().and_then(|found| found.try_id()) {
                return self.peel(id.detach()).ok_or(BrowseError::NoRef);
            }
        }
        let is_id = name.len() >= MIN_ID_CHARACTERS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let prefix = is_id.then(|| gix::hash::Prefix::from_hex(name).ok()).flatten().ok_or(BrowseError::NoRef)?;
        match self.repository.objects.lookup_prefix(prefix, None) {
            Ok(Some(Ok(id))) => self.peel(id).ok_or(BrowseError::NoRef),
            Ok(_) => Err(BrowseError::NoRef),
            Err(error) => Err(internal(error)),
        }
    }

    fn find(&self, name: &str, path: &str) -> Result<Found> {
        self.find_in(self.commit(name)?, path)
    }

    fn find_in(&self, commit: ObjectId, path: &str) -> Result<Found> {
        let mut found =
            Found { commit, path: String::new(), raw: Vec::new(), oid: self.tree_of(commit)?, kind: EntryKind::Tree };
        let components = components(path).ok_or(BrowseError::NoPath)?;
        for component in components {
            if found.kind != EntryKind::Tree {
                return Err(BrowseError::NoPath);
            }
            let (name, kind, oid) = self.entry(found.oid, component)?.ok_or(BrowseError::NoPath)?;
            let Found { mut path, mut raw, .. } = found;
            if !path.is_empty() {
                path.push('/');
                raw.push(b'/');
            }
            path.push_str(&escape(name.as_bstr()));
            raw.extend_from_slice(&name);
            found = Found { commit, path, raw, oid, kind };
        }
        Ok(found)
    }

    fn tree_of(&self, commit: ObjectId) -> Result<ObjectId> {
        let data = self.read(commit, MAX_OBJECT_BYTES)?;
        gix::objs::CommitRefIter::from_bytes(&data, gix::hash::Kind::Sha1).tree_id().map_err(internal)
    }

    /// Returns the entry of a directory with this name. An entry with exactly this name precedes one whose name results
    /// from the escapes in it.
    fn entry(&self, tree: ObjectId, name: &str) -> Result<Option<(Vec<u8>, EntryKind, ObjectId)>> {
        let data = self.read(tree, MAX_OBJECT_BYTES)?;
        let (escaped, mut found) = (unescape(name), None);
        for entry in TreeRefIter::from_bytes(&data, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(internal)?;
            let is_exact = entry.filename == name;
            if is_exact || escaped.as_deref().is_some_and(|escaped| entry.filename == escaped) {
                found = Some((entry.filename.to_vec(), entry.mode.kind(), entry.oid.to_owned()));
            }
            if is_exact {
                break;
            }
        }
        Ok(found)
    }

    fn read(&self, id: ObjectId, max: u64) -> Result<Vec<u8>> {
        let header = self.repository.find_header(id).map_err(internal)?;
        if header.size() > max {
            return Err(BrowseError::NoPath);
        }
        Ok(self.repository.find_object(id).map_err(internal)?.detach().data)
    }

    /// Returns a directory.
    pub fn tree(&self, name: &str, path: &str) -> Result<Tree> {
        let found = self.find(name, path)?;
        if found.kind != EntryKind::Tree {
            return Err(BrowseError::NoPath);
        }
        let data = self.read(found.oid, MAX_OBJECT_BYTES)?;
        let (mut entries, mut truncated) = (LimitedList::new(), false);
        for entry in TreeRefIter::from_bytes(&data, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(internal)?;
            let kind = match entry.mode.kind() {
                EntryKind::Tree => "tree",
                EntryKind::Blob | EntryKind::BlobExecutable => "blob",
                EntryKind::Link => "symlink",
                EntryKind::Commit => "commit",
            };
            let size = (kind == "blob").then(|| self.repository.find_header(entry.oid).map(|header| header.size()));
            let entry = Entry {
                name: escape(entry.filename),
                kind,
                mode: format!("{:06o}", entry.mode.value()),
                oid: entry.oid.to_string(),
                size: size.transpose().map_err(internal)?,
            };
            truncated = entries.items.len() == MAX_ENTRIES || !entries.push(entry)?;
            if truncated {
                break;
            }
        }
        Ok(Tree { commit: found.commit.to_string(), path: found.path, entries: entries.items, truncated })
    }

    /// Returns a file, or the target of a symbolic link.
    pub fn blob(&self, name: &str, path: &str) -> Result<Blob> {
        let Found { commit, path, oid, kind, .. } = self.find(name, path)?;
        if !matches!(kind, EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Link) {
            return Err(BrowseError::NoPath);
        }
        let size = self.repository.find_header(oid).map_err(internal)?.size();
        let too_large = size > MAX_BLOB_BYTES;
        let data = if too_large { None } else { Some(self.read(oid, MAX_BLOB_BYTES)?) };
        let contents = data.as_ref().filter(|data| !data.iter().take(BINARY_PREFIX_BYTES).any(|byte| *byte == 0));
        let contents = contents.and_then(|data| String::from_utf8(data.clone()).ok());
        let binary = data.is_some() && contents.is_none();
        let (commit, oid) = (commit.to_string(), oid.to_string());
        Ok(Blob { commit, path, oid, size, too_large, binary, contents })
    }

    /// Returns commits of a history, newest first. If a path is given, returns only commits that changed it.
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
                ObjectId::from_hex(id.as_bytes()).ok().and_then(|id| self.peel(id)).ok_or(BrowseError::NoRef)?
            }
            None => self.commit(name)?,
        };
        let path = self.find_in(start, path)?.raw;
        // One more commit shows whether the history continues.
        let history = History { start, path, skip, limit: limit.saturating_add(1) };
        let ids = if history.path.is_empty() {
            self.newest(&history)?
        } else {
            cache.get_or_insert_with(&history, || self.changing(git, &history))?
        };
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
        let (started, skip) = (Instant::now(), usize::try_from(history.skip).unwrap_or(usize::MAX));
        let mut ids = Vec::new();
        for (number, commit) in walk.take(skip.saturating_add(history.limit)).enumerate() {
            if started.elapsed() > MAX_WALK {
                return Err(anyhow!("the walk to commit {number} took too long").into());
            }
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
        let listed = tokio::runtime::Handle::current().block_on(output(command, MAX_WALK))?;
        let ids = listed.lines().map(|line| ObjectId::from_hex(line).map_err(internal));
        ids.collect()
    }

    fn show(&self, id: ObjectId) -> Result<Commit> {
        let data = self.read(id, MAX_OBJECT_BYTES)?;
        let commit = gix::objs::CommitRef::from_bytes(&data, gix::hash::Kind::Sha1).map_err(internal)?;
        let message = commit.message.get(..MAX_MESSAGE_BYTES).unwrap_or(commit.message);
        let encoding = commit.encoding.and_then(|label| encoding_rs::Encoding::for_label(label));
        let decode = |text: &[u8]| match encoding {
            Some(encoding) => encoding.decode_without_bom_handling(text).0.into_owned(),
            None => String::from_utf8_lossy(text).into_owned(),
        };
        let person = |signature: gix::actor::SignatureRef<'_>| {
            let seconds = signature.seconds().clamp(0, MAX_SECONDS);
            let text = |text: &[u8]| decode(text.get(..MAX_PERSON_BYTES).unwrap_or(text));
            Person {
                name: text(signature.name),
                email: text(signature.email),
                at: DateTime::from_timestamp(seconds, 0)
                    .unwrap_or_default()
                    .to_rfc3339_opts(SecondsFormat::Millis, true),
            }
        };
        Ok(Commit {
            oid: id.to_string(),
            message: decode(message),
            author: person(commit.author().map_err(internal)?),
            committer: person(commit.committer().map_err(internal)?),
            parents: commit.parents().take(MAX_PARENTS).map(|parent| parent.to_string()).collect(),
        })
    }
}
