//! Browsing: reads the contents of a repository for the control plane (contract section 10).

mod history;
mod limited_list;
mod model;
mod names;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use gix::bstr::{BString, ByteSlice as _};
use gix::object::Kind;
use gix::objs::tree::EntryKind;
use gix::objs::{TagRefIter, TreeRefIter};
use gix::path::RelativePath;
use gix::{ObjectId, Repository};

use self::limited_list::{LimitedList, MAX_LIST_BYTES};
use self::names::{components, escape, unescape};

pub use self::history::{Histories, HistoryPart};
pub use self::model::{Blob, Entry, Refs, Target, Tree};

/// The maximum duration of a read. The control plane waits a little longer.
const MAX_READ: Duration = Duration::from_secs(5);
/// The maximum number of entries of a directory that are listed (specification, "Limits").
const MAX_ENTRIES: usize = 1000;
/// The maximum size of a file that is read, in bytes.
const MAX_BLOB_BYTES: u64 = 1 << 20;
/// A file is binary if its first 8,000 bytes contain a NUL.
const BINARY_PREFIX_BYTES: usize = 8000;
/// The maximum size of a directory or commit object that is read, in bytes.
const MAX_OBJECT_BYTES: u64 = 32 << 20;
/// The maximum number of branches in a response, and of tags. If there are more, the first ones in the order of their
/// names are listed.
const MAX_REFS: usize = 50_000;
/// The maximum number of tag objects between a ref and its commit. A tag can point to another tag.
const MAX_TAGS: usize = 100;
/// The minimum length of an abbreviated commit id.
const MIN_ID_CHARACTERS: usize = 7;

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

/// A repository that is open for one read.
pub struct Browser {
    repository: Repository,
    deadline: Instant,
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

/// Returns a function that counts a ref, given the length of its name, and returns whether the list can contain it.
fn ref_limit() -> impl FnMut(usize) -> bool {
    let (mut refs, mut bytes) = (0, 0);
    move |length| {
        refs += 1;
        bytes += length;
        refs <= MAX_REFS && bytes <= MAX_LIST_BYTES
    }
}

/// Returns whether git removed a listed file or folder before it was read, or replaced one by the other.
fn has_changed(error: &gix::Error) -> bool {
    let kind = error.downcast_any_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory))
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
        Ok(Self { repository, deadline: Instant::now() + MAX_READ })
    }

    /// Returns the time until the deadline. Fails after it.
    fn remaining(&self) -> Result<Duration> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(anyhow!("the read took longer than {} seconds", MAX_READ.as_secs()).into());
        }
        Ok(remaining)
    }

    /// Returns the branches and tags. Omits tags that point to other objects than commits.
    pub fn refs(&self) -> Result<Refs> {
        Ok(Refs { branches: self.targets("refs/heads/")?, tags: self.targets("refs/tags/")? })
    }

    fn targets(&self, prefix: &str) -> Result<Vec<Target>> {
        let (mut targets, mut fits) = (LimitedList::new(), ref_limit());
        for (name, id) in self.objects_of_refs(prefix)? {
            if !fits(name.len()) {
                break;
            }
            let Some(id) = id else { continue };
            let Some(commit) = self.peel(id)? else { continue };
            let name = escape(name.strip_prefix(prefix.as_bytes()).unwrap_or(&name).as_bstr());
            if !targets.push(Target { name, commit: commit.to_string() })? {
                break;
            }
        }
        targets.items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(targets.items)
    }

    /// Returns the refs with this prefix, at least all within [`ref_limit`]. Symbolic refs have no object.
    fn objects_of_refs(&self, prefix: &str) -> Result<BTreeMap<BString, Option<ObjectId>>> {
        let path: &RelativePath = prefix.try_into().map_err(internal)?;
        let store = &self.repository.refs;
        let (mut refs, mut fits) = (BTreeMap::new(), ref_limit());
        // git adds a ref to `packed-refs` before it removes the file of the ref, so the files are read first.
        for reference in store.loose_iter_prefixed(path).map_err(internal)? {
            self.remaining()?;
            let reference = match reference {
                Err(error) if has_changed(&error) => continue,
                reference => reference.map_err(internal)?,
            };
            let name = reference.name.into_inner();
            let is_last = !fits(name.len());
            refs.insert(name, reference.target.try_id().map(ToOwned::to_owned));
            if is_last {
                break;
            }
        }
        let Some(packed) = store.open_packed_buffer().map_err(internal)? else { return Ok(refs) };
        fits = ref_limit();
        for reference in packed.iter_prefixed(prefix.into()).map_err(internal)? {
            self.remaining()?;
            let reference = reference.map_err(internal)?;
            let name = reference.name.as_bstr().to_owned();
            let is_last = !fits(name.len());
            refs.entry(name).or_insert_with(|| Some(reference.target()));
            if is_last {
                break;
            }
        }
        Ok(refs)
    }

    /// Returns the commit that an object is, or to which a tag object points, also through other tags.
    fn peel(&self, mut id: ObjectId) -> Result<Option<ObjectId>> {
        for _ in 0..=MAX_TAGS {
            self.remaining()?;
            let Ok(header) = self.repository.find_header(id) else { break };
            match header.kind() {
                Kind::Commit => return Ok(Some(id)),
                Kind::Tag if header.size() <= MAX_OBJECT_BYTES => {}
                _ => break,
            }
            let Ok(tag) = self.repository.find_object(id) else { break };
            let Ok(target) = TagRefIter::from_bytes(&tag.data, gix::hash::Kind::Sha1).target_id() else { break };
            id = target;
        }
        Ok(None)
    }

    /// Returns the commit of a name: the branch with this name, otherwise the tag, otherwise the commit with this id.
    fn commit(&self, name: &str) -> Result<ObjectId> {
        for prefix in ["refs/heads/", "refs/tags/"] {
            let full = format!("{prefix}{name}");
            // An error means that no ref can have this name.
            let Ok(found) = self.repository.try_find_reference(full.as_str()) else { continue };
            if let Some(id) = found.as_ref().and_then(|found| found.try_id()) {
                return self.peel(id.detach())?.ok_or(BrowseError::NoRef);
            }
        }
        let is_id = name.len() >= MIN_ID_CHARACTERS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let prefix = is_id.then(|| gix::hash::Prefix::from_hex(name).ok()).flatten().ok_or(BrowseError::NoRef)?;
        match self.repository.objects.lookup_prefix(prefix, None) {
            Ok(Some(Ok(id))) => self.peel(id)?.ok_or(BrowseError::NoRef),
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
        if self.size(id)? > max {
            return Err(BrowseError::NoPath);
        }
        Ok(self.repository.find_object(id).map_err(internal)?.detach().data)
    }

    fn size(&self, id: ObjectId) -> Result<u64> {
        self.remaining()?;
        Ok(self.repository.find_header(id).map_err(internal)?.size())
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
            let size = (kind == "blob").then(|| self.size(entry.oid.to_owned())).transpose()?;
            let entry = Entry {
                name: escape(entry.filename),
                kind,
                mode: format!("{:06o}", entry.mode.value()),
                oid: entry.oid.to_string(),
                size,
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
        let size = self.size(oid)?;
        let too_large = size > MAX_BLOB_BYTES;
        let data = if too_large { None } else { Some(self.read(oid, MAX_BLOB_BYTES)?) };
        let contents = data.as_ref().filter(|data| !data.iter().take(BINARY_PREFIX_BYTES).any(|byte| *byte == 0));
        let contents = contents.and_then(|data| String::from_utf8(data.clone()).ok());
        let binary = data.is_some() && contents.is_none();
        let (commit, oid) = (commit.to_string(), oid.to_string());
        Ok(Blob { commit, path, oid, size, too_large, binary, contents })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};
    use std::path::Path;
    use std::process::Stdio;
    use std::thread;

    use tokio::task::spawn_blocking;

    use super::*;
    use crate::git::Git;
    use crate::repository::{Repositories, Use};

    /// Runs git with this standard input.
    fn run(git: &Git, repository: &Path, arguments: &[&str], input: &str) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(input.as_bytes()).unwrap();
        file.rewind().unwrap();
        let mut command = git.maintenance(Some(repository));
        assert!(command.args(arguments).stdin(Stdio::from(file)).status().unwrap().success());
    }

    /// git packs all branches, and replaces one by a folder and the reverse, while they are listed.
    #[tokio::test(flavor = "multi_thread")]
    async fn refs_are_complete_while_git_packs_and_replaces_refs() {
        const BRANCHES: usize = 500;
        let (_folder, repositories) = Repositories::temporary();
        let repository = repositories.open_or_create("rep_0000000000000001", "main", Use::Read).await.unwrap();
        let (git, path) = (repositories.git(), repository.path.as_path());
        let commit =
            |name| format!("commit refs/heads/{name}\ncommitter Ada <ada@example.org> 0 +0000\ndata 1\n{name}\n");
        run(git, path, &["fast-import", "--quiet"], &["a", "b"].map(commit).concat());
        let list = || {
            let deadline = Instant::now() + Duration::from_secs(3600);
            Browser { deadline, ..Browser::open(path).unwrap() }.refs().unwrap().branches
        };
        let branches = list();
        let [a, b] = [0, 1].map(|index| branches[index].commit.as_str());
        let update = |commit: &str| {
            let mut updates = format!("update refs/heads/replaced {commit}\n");
            updates.extend((0..BRANCHES).map(|number| format!("update refs/heads/kept/{number} {commit}\n")));
            run(git, path, &["-c", "core.fsync=none", "update-ref", "--stdin"], &updates);
        };
        update(a);
        thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for commit in [b, a].into_iter().cycle().take(20) {
                    run(git, path, &["update-ref", "-d", "refs/heads/replaced"], "");
                    run(git, path, &["update-ref", "refs/heads/replaced/a", commit], "");
                    run(git, path, &["pack-refs", "--all"], "");
                    run(git, path, &["update-ref", "-d", "refs/heads/replaced/a"], "");
                    update(commit);
                }
            });
            while !changes.is_finished() {
                let kept = list().into_iter().filter(|branch| branch.name.starts_with("kept/")).count();
                assert_eq!(kept, BRANCHES);
            }
            changes.join().unwrap();
        });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reads_end_at_the_deadline() {
        let (_folder, repositories) = Repositories::temporary();
        let repository = repositories.open_or_create("rep_0000000000000001", "main", Use::Read).await.unwrap();
        let commit = "commit refs/heads/main\ncommitter Ada <ada@example.org> 0 +0000\ndata 1\nm\n\
                      M 100644 inline a\ndata 1\na\n";
        run(repositories.git(), &repository.path, &["fast-import", "--quiet"], commit);
        let read_all = move |deadline| {
            let browser = Browser { deadline, ..Browser::open(&repository.path).unwrap() };
            let commits = |path| {
                let part = HistoryPart { start: None, skip: 0, limit: 1 };
                browser.commits(repositories.git(), &Histories::default(), "main", path, part).map(drop)
            };
            let blob = browser.blob("main", "a").map(drop);
            [browser.refs().map(drop), browser.tree("main", "").map(drop), blob, commits(""), commits("a")]
        };
        let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let [in_time, too_late] = spawn_blocking(move || [late, early].map(read_all)).await.unwrap();
        assert!(in_time.iter().all(Result::is_ok), "{in_time:?}");
        for read in too_late {
            let error = read.unwrap_err();
            assert!(matches!(error, BrowseError::Internal(_)) && error.to_string().contains("took longer"), "{error}");
        }
    }
}
