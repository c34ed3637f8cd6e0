//! Pushes that harm a server that trusts them: names of refs, malformed objects, and packs that grow. Each is refused
//! in bounded memory, while another user fetches.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Kit;
use super::packs::{
    BLOB, COMMIT, Pack, REF_DELTA, TREE, create, deflate, deflated_zeros, delta, hex, id, push, repeat,
};

/// The maximum peak of the resident memory of a process, in bytes.
const MAX_PROCESS_BYTES: u64 = 1200 << 20;
/// The number of refs of the largest push.
const REFS: usize = 200_000;
/// The maximum peak of the node itself, in a debug build.
const MAX_NODE_BYTES: u64 = 400 << 20;

/// Adds a commit, its tree and its file to the pack.
fn valid(pack: Pack) -> Pack {
    let tree = [b"100644 a\0".as_slice(), &id("blob", b"a")].concat();
    pack.object(BLOB, b"a").object(TREE, &tree).object(COMMIT, &commit_of(&id("tree", &tree)))
}

fn commit_of(tree: &[u8]) -> Vec<u8> {
    let person = "Ada <ada@example.org> 1700000000 +0000";
    format!("tree {}\nauthor {person}\ncommitter {person}\n\nA commit\n", hex(tree)).into_bytes()
}

/// Names that no ref may have.
const NAMES: [&[u8]; 40] = [
    b"HEAD",
    b"FETCH_HEAD",
    b"main",
    b"/refs/heads/x",
    b"refs/heads/",
    b"refs/heads//x",
    b"refs/heads/x/",
    b"refs/heads/../x",
    b"refs/heads/../../config",
    b"refs/../HEAD",
    b"refs/heads/x..y",
    b"refs/heads/.x",
    b"refs/heads/x.",
    b"refs/heads/x.lock",
    b"refs/heads/x.lock/y",
    b"refs/heads/x@{1}",
    b"refs/heads/@{u}",
    b"refs/heads/x y",
    b"refs/heads/x~1",
    b"refs/heads/x^",
    b"refs/heads/x:y",
    b"refs/heads/x?",
    b"refs/heads/x*",
    b"refs/heads/x[y",
    b"refs/heads/x\\y",
    b"refs/heads/x\x01",
    b"refs/heads/x\x7f",
    b"refs/heads/x\ty",
    b"refs/heads/x\ny",
    b"refs/heads/x\x1b[2J",
    b"refs/heads/\xff\xfe",
    b"refs/heads/HEAD",
    b"refs/heads/-x",
    b"refs/heads/--upload-pack=touch",
    b"refs/tags/--exec=x",
    b"refs/svc/x",
    b"refs/svc/kept/1111111111111111111111111111111111111111",
    b"refs",
    b"hooks/pre-receive",
    b"--upload-pack=touch x",
];

#[tokio::test(flavor = "multi_thread")]
async fn names_of_refs_are_refused() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    let head = work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main"]);
    let (empty, _) = Pack::new(0).finish();
    let before = work.git(&["ls-remote", "origin"]);
    for name in NAMES {
        let report =
            push(&kit, &kit.token, [create(&head, name, true), b"0000".to_vec(), empty.clone()].concat()).await;
        let shown = String::from_utf8_lossy(name);
        assert!(!report.contains("ok refs"), "{shown}: {report}");
        assert_eq!(work.git(&["ls-remote", "origin"]), before, "{shown}");
    }
    // A NUL ends the name of the ref, so this push creates `refs/heads/x`.
    let name = b"refs/heads/x\0y report-status";
    let report = push(&kit, &kit.token, [create(&head, name, false), b"0000".to_vec(), empty].concat()).await;
    assert!(report.contains("ok refs/heads/x"), "{report}");
    let bare = kit.bare().await;
    assert_eq!(std::fs::read_to_string(bare.join("HEAD")).unwrap(), "ref: refs/heads/main\n");
    assert!(!bare.join("hooks").exists());
}

/// Tests the number of updates, which git itself reads into memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_with_too_many_commands_names_the_limit() {
    let kit = Kit::start().await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let work = kit.init("work");
    let head = work.commit("a", b"1");
    let refs: String = (0..2_001).map(|number| format!("{head} refs/heads/b{number:05}\n")).collect();
    std::fs::write(work.path().join(".git/packed-refs"), refs).unwrap();
    for url in ["origin", &kit.ssh_url("app")] {
        let refused = work.fails(&["push", url, "refs/heads/*"]);
        assert!(refused.contains("A push can update 2000 refs"), "{refused}");
    }
    assert_eq!(work.git(&["ls-remote", "origin"]), "");
}

/// Packs that are refused, with the name of the test case, and the object that a ref would name.
fn packs() -> Vec<(&'static str, (Vec<u8>, String))> {
    let without = |pack: &[u8]| (pack.to_vec(), hex(&id("blob", b"a")));
    let huge = 1_u64 << 62;
    let text = b"a blob of some bytes that is the base".as_slice();
    let nested = |name: &[u8], mode: &str| {
        // A commit whose tree has this entry.
        let entry = [mode.as_bytes(), b" ", name, b"\0", &id("blob", b"a")].concat();
        Pack::new(3).object(BLOB, b"a").object(TREE, &entry).object(COMMIT, &commit_of(&id("tree", &entry))).finish()
    };
    let two = |first: &[u8], second: &[u8]| {
        let entry = |name: &[u8]| [b"100644 ", name, b"\0", &id("blob", b"a")].concat();
        let tree = [entry(first), entry(second)].concat();
        Pack::new(3).object(BLOB, b"a").object(TREE, &tree).object(COMMIT, &commit_of(&id("tree", &tree))).finish()
    };
    let one_commit = |commit: &[u8]| Pack::new(1).object(COMMIT, commit).finish();
    let modules = b"[submodule \"a\"]\n\tpath = a\n\turl = --upload-pack=touch\n";
    let with_modules = {
        let tree = [b"100644 .gitmodules\0".as_slice(), &id("blob", modules)].concat();
        Pack::new(3).object(BLOB, modules).object(TREE, &tree).object(COMMIT, &commit_of(&id("tree", &tree))).finish()
    };
    let mut truncated = valid(Pack::new(3)).finish();
    truncated.0.truncate(60);
    let mut wrong_checksum = valid(Pack::new(3)).finish();
    *wrong_checksum.0.last_mut().unwrap() ^= 1;
    let base = vec![b'x'; 64 * 1024];
    vec![
        ("no pack", without(b"")),
        ("no header", without(b"PACK")),
        ("another signature", without(b"KCAP\0\0\0\x02\0\0\0\0")),
        ("another version", without(b"PACK\0\0\0\x09\0\0\0\0")),
        ("a truncated pack", truncated),
        ("a wrong checksum", wrong_checksum),
        ("fewer objects than announced", valid(Pack::new(4)).finish()),
        ("more objects than announced", valid(Pack::new(2)).finish()),
        ("four billion objects announced", valid(Pack::new(u32::MAX)).finish()),
        ("an object of type 0", valid(Pack::new(4)).sized(0, 1, &deflate(b"a")).finish()),
        ("an object of type 5", valid(Pack::new(4)).sized(5, 1, &deflate(b"a")).finish()),
        ("a size of 2^62 bytes", valid(Pack::new(4)).sized(COMMIT, huge, &deflate(b"a")).finish()),
        ("an endless size", valid(Pack::new(4)).raw(&[0xff; 64]).finish()),
        ("a smaller size than announced", valid(Pack::new(4)).sized(BLOB, 100, &deflate(b"a")).finish()),
        ("a larger size than announced", valid(Pack::new(4)).sized(BLOB, 1, &deflate(text)).finish()),
        ("no compressed data", valid(Pack::new(4)).sized(BLOB, 4, b"abcdefgh").finish()),
        ("a delta against nothing", valid(Pack::new(4)).delta_at(1 << 40, &delta(1, 1, b"\x01a")).finish()),
        ("a delta against itself", valid(Pack::new(4)).delta_at(0, &delta(1, 1, b"\x01a")).finish()),
        ("a delta into the middle", Pack::new(2).object(BLOB, text).delta_at(3, &delta(37, 1, b"\x01a")).finish()),
        ("a delta against a missing object", valid(Pack::new(4)).ref_delta(&[7; 20], &delta(1, 1, b"\x01a")).finish()),
        (
            "a delta with another size of its base",
            Pack::new(2).object(BLOB, text).delta(&delta(9, 1, b"\x01a")).finish(),
        ),
        ("a delta that copies too much", Pack::new(2).object(BLOB, text).delta(&delta(37, 99, b"\x90\x63")).finish()),
        ("a delta with a wrong result", Pack::new(2).object(BLOB, text).delta(&delta(37, 99, b"\x01a")).finish()),
        ("a delta with instruction 0", Pack::new(2).object(BLOB, text).delta(&delta(37, 1, b"\0")).finish()),
        ("a delta of 2^62 bytes", Pack::new(2).object(BLOB, text).delta(&delta(37, huge, b"\x90\x25")).finish()),
        ("a reference delta without data", valid(Pack::new(4)).sized(REF_DELTA, 9, &[7; 20]).finish()),
        ("a missing object", Pack::new(1).object(COMMIT, &commit_of(&[9; 20])).finish()),
        ("a commit without an author", one_commit(format!("tree {}\n\nx", "1".repeat(40)).as_bytes())),
        ("a commit that is not text", one_commit(&[0xff; 64])),
        ("an empty commit", one_commit(b"")),
        ("an entry `.`", nested(b".", "100644")),
        ("an entry `..`", nested(b"..", "100644")),
        ("an entry `.git`", nested(b".git", "100644")),
        ("an entry `.GIT`", nested(b".GIT", "100644")),
        ("an entry `git~1`", nested(b"git~1", "100644")),
        ("an entry `.g\u{200c}it`", nested(".g\u{200c}it".as_bytes(), "100644")),
        ("an entry `a/../../x`", nested(b"a/../../x", "100644")),
        ("an entry without a name", nested(b"", "100644")),
        ("a linked `.gitmodules`", nested(b".gitmodules", "120000")),
        ("a mode with zeros", nested(b"a", "0100644")),
        ("two entries of one name", two(b"a", b"a")),
        ("entries in another order", two(b"b", b"a")),
        ("a submodule with an option as its URL", with_modules),
        ("an object twice the limit", Pack::new(2).object(BLOB, &base).delta(&repeat(base.len(), 16 * 1024)).finish()),
        (
            "a chain of deltas that grows",
            Pack::new(4)
                .object(BLOB, &base)
                .delta(&repeat(base.len(), 1000))
                .delta(&repeat(1000 * base.len(), 7))
                .delta(&repeat(7000 * base.len(), 2))
                .finish(),
        ),
        ("a commit of zeros", valid(Pack::new(4)).sized(COMMIT, 1 << 30, &deflated_zeros(1024)).finish()),
        ("no objects", Pack::new(0).finish()),
    ]
}

/// Returns the pack and the id of a commit whose tree has this depth.
fn deep(depth: u32) -> (Vec<u8>, String) {
    let mut tree = [b"100644 a\0".as_slice(), &id("blob", b"a")].concat();
    let mut pack = Pack::new(depth + 2).object(BLOB, b"a").object(TREE, &tree);
    for _ in 1..depth {
        tree = [b"40000 d\0".as_slice(), &id("tree", &tree)].concat();
        pack = pack.object(TREE, &tree);
    }
    pack.object(COMMIT, &commit_of(&id("tree", &tree))).finish()
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_are_refused_in_bounded_memory() {
    let kit = Kit::start_with(&[("SVC_GIT_MAX_PUSH", "16MiB".to_owned())]).await;
    kit.create("app").await;
    kit.create("other").await;
    let work = kit.init("work");
    work.commit("a", b"1");
    work.git(&["push", "--quiet", "origin", "main", &format!("{}:refs/heads/kept", "HEAD")]);
    work.git(&["push", "--quiet", &kit.url(&kit.token, "other"), "main"]);
    let before = work.git(&["ls-remote", "origin"]);
    let mia = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let other = kit.url(&super::kit::token(&mia, &["git:read"]).await, "other");
    let (stop, node) = (AtomicBool::new(false), kit.node.pid());
    let (peaks, fetches) = std::thread::scope(|scope| {
        let measure = scope.spawn(|| {
            let mut peaks = BTreeMap::new();
            while !stop.load(Ordering::Relaxed) {
                record_peaks(node, &mut peaks);
                std::thread::sleep(Duration::from_millis(20));
            }
            peaks
        });
        let fetch = scope.spawn(|| {
            let mut fetches = 0;
            while !stop.load(Ordering::Relaxed) {
                let clone = kit.clone(&other, &format!("fetch{fetches}"), &[]);
                assert_eq!(std::fs::read(clone.path().join("a")).unwrap(), b"1");
                fetches += 1;
            }
            fetches
        });
        // Stops the threads, even if a check fails.
        let ended = Ended(&stop);
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                push_all(&kit).await;
                work.git(&["push", "--quiet", "origin", "--delete", "valid", "zeros"]);
                assert_eq!(work.git(&["ls-remote", "origin"]), before);
            });
        });
        drop(ended);
        (measure.join().unwrap(), fetch.join().unwrap())
    });
    assert!(fetches > 10, "{fetches}");
    for ((process, command), peak) in &peaks {
        let max = if *process == node { MAX_NODE_BYTES } else { MAX_PROCESS_BYTES };
        assert!(peak < &max, "{command}: {} MiB", peak >> 20);
    }
    let largest = peaks.iter().max_by_key(|(_, peak)| **peak).unwrap();
    println!("{} processes; the largest, {}: {} MiB", peaks.len(), largest.0.1, largest.1 >> 20);
    let bare = kit.bare().await;
    work.git(&["--git-dir", bare.to_str().unwrap(), "fsck", "--full"]);
    assert_eq!(kit.ref_updates(6).await.len(), 6);
}

async fn push_all(kit: &Kit) {
    let push_to = async |name: &str, (pack, oid): (Vec<u8>, String)| {
        push(kit, &kit.token, [create(&oid, name.as_bytes(), true), b"0000".to_vec(), pack].concat()).await
    };
    // The checks accept a pack without a defect.
    assert!(push_to("refs/heads/valid", valid(Pack::new(3)).finish()).await.contains("ok refs/heads/valid"));
    for (name, pack) in packs() {
        let report = push_to("refs/tags/bad", pack).await;
        assert!(!report.contains("ok refs"), "{name}: {report}");
    }
    assert!(push_to("refs/heads/deep", deep(10_000)).await.contains("ng refs/heads/deep"));
    // git does not load a file of this size into memory. It stores the object as it is sent.
    let (zeros, _) = Pack::new(1).sized(BLOB, 513 << 20, &deflated_zeros(513)).finish();
    let head = hex(&id("blob", b"a"));
    assert!(push_to("refs/tags/zeros", (zeros, head)).await.contains("ok refs/tags/zeros"));
    // This pack exceeds the limit on the size of a push.
    let data: Vec<u8> = (0..20_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let large = Pack::new(1).sized(BLOB, data.len() as u64, &store(&data)).finish();
    let report = push_to("refs/tags/large", (large.0, hex(&id("blob", &data)))).await;
    assert!(!report.contains("ok refs"), "{report}");
    // This push has a very large number of refs.
    let (pack, commit) = valid(Pack::new(3)).finish();
    let mut body = Vec::new();
    for number in 0..REFS {
        body.extend(create(&commit, format!("refs/tags/t{number}").as_bytes(), number == 0));
    }
    let report = push(kit, &kit.token, [body, b"0000".to_vec(), pack].concat()).await;
    assert!(!report.contains("ok refs"), "{}", &report[..report.len().min(1000)]);
}

/// Returns a zlib stream that stores the data without compression.
fn store(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Records the peak memory of a process and of its descendants.
fn record_peaks(root: u32, peaks: &mut BTreeMap<(u32, String), u64>) {
    let field = |text: &str, name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let processes: BTreeMap<u32, (u32, String, u64)> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let parent = u32::try_from(field(&status, "PPid:")?).ok()?;
            Some((process, (parent, command, field(&status, "VmHWM:")? << 10)))
        })
        .collect();
    for (process, (_, command, peak)) in &processes {
        let mut ancestor = *process;
        while ancestor != root
            && let Some((parent, ..)) = processes.get(&ancestor)
        {
            ancestor = *parent;
        }
        if ancestor == root {
            let known = peaks.entry((*process, command.clone())).or_default();
            *known = (*known).max(*peak);
        }
    }
}
