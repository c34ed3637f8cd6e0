//! The hooks that `git receive-pack` runs: this program under another name. They ask the node through its socket, and
//! execute nothing else.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _, stdin};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// The variable with the path of the node's socket.
pub(crate) const SOCKET: &str = "SVC_GIT_HOOK_SOCKET";
/// The variable with the id of the push.
pub(crate) const PUSH: &str = "SVC_GIT_HOOK_PUSH";

/// The largest number of updates of refs in one push.
const MAX_UPDATES: usize = 2_000;
/// The longest name of a ref, in bytes.
const MAX_NAME_BYTES: usize = 1024;
/// The longest line of a hook: two object ids and a name.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// The response of the node if it recorded the step.
pub(crate) const OK: &str = "ok";

/// A hook of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Runs before any update of a push. Refuses a push that the journal cannot contain.
    PreReceive,
    /// Runs at each step of a transaction of refs. Records the transaction.
    ReferenceTransaction,
    /// Runs after all updates of a push. Prints the result of the deploy.
    PostReceive,
}

impl Hook {
    /// All hooks, by the names that git gives them.
    pub(crate) const ALL: [(&'static str, Self); 3] = [
        ("pre-receive", Self::PreReceive),
        ("reference-transaction", Self::ReferenceTransaction),
        ("post-receive", Self::PostReceive),
    ];
}

/// Returns the hook with this file name.
#[must_use]
pub fn named(name: &str) -> Option<Hook> {
    Hook::ALL.iter().find_map(|(known, hook)| (*known == name).then_some(*hook))
}

/// The step of a push, or of one of its transactions (githooks(5), "pre-receive" and "reference-transaction").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// The updates of the whole push, before any transaction.
    Received,
    /// All refs are locked. The transaction can still be aborted.
    Prepared,
    Committed,
    Aborted,
    /// The updates of the whole push that took effect.
    Finished,
}

impl Phase {
    /// Returns whether this is a step of a transaction.
    const fn is_transaction(self) -> bool {
        matches!(self, Self::Prepared | Self::Committed | Self::Aborted)
    }
}

/// An update of a ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Update {
    pub name: String,
    /// `None` for a new ref.
    pub old: Option<String>,
    /// `None` for a deleted ref.
    pub new: Option<String>,
}

/// A step of a transaction, as the hook reports it to the node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub push: String,
    pub phase: Phase,
    pub updates: Vec<Update>,
}

/// Runs a hook with the step of a transaction, if git passed one.
#[must_use]
pub fn run(hook: Hook, phase: Option<&str>) -> ExitCode {
    let phase = match (hook, phase) {
        (Hook::PreReceive, _) => Phase::Received,
        (Hook::PostReceive, _) => Phase::Finished,
        (Hook::ReferenceTransaction, Some("prepared")) => Phase::Prepared,
        (Hook::ReferenceTransaction, Some("committed")) => Phase::Committed,
        (Hook::ReferenceTransaction, Some("aborted")) => Phase::Aborted,
        // Newer versions of git may have further steps.
        (Hook::ReferenceTransaction, _) => return ExitCode::SUCCESS,
    };
    match read_updates(phase).and_then(|updates| report(phase, updates)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn read_updates(phase: Phase) -> io::Result<Vec<Update>> {
    let mut updates = Vec::new();
    let mut lines = BufReader::new(stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(updates);
        }
        if updates.len() == MAX_UPDATES {
            return Err(io::Error::other(format!("A push can update {MAX_UPDATES} refs. Push fewer refs at once.")));
        }
        let update = parse(&line)?;
        // In a transaction, git also lists refs that it locks but does not change. These are skipped.
        updates.extend(update.filter(|update| !phase.is_transaction() || update.old != update.new));
    }
}

/// Parses a line `<old> <new> <name>`. Returns `None` for a symbolic ref.
fn parse(line: &[u8]) -> io::Result<Option<Update>> {
    let line = str::from_utf8(line).map_err(|_| io::Error::other("The name of a ref is not UTF-8. Rename the ref."))?;
    let mut fields = line.trim_end_matches('\n').splitn(3, ' ');
    let (Some(old), Some(new), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(io::Error::other("git passed a malformed update of a ref"));
    };
    if name.len() > MAX_NAME_BYTES {
        return Err(io::Error::other(format!("The name of a ref is longer than {MAX_NAME_BYTES} bytes.")));
    }
    let is_object = |id: &str| id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_object(old) || !is_object(new) {
        return Ok(None);
    }
    let is_new = new.bytes().any(|byte| byte != b'0');
    // git itself would not create a branch or tag of this name.
    if is_new && name.splitn(3, '/').nth(2).is_some_and(|name| name.starts_with('-') || name == "HEAD") {
        return Err(io::Error::other(format!("{name} is not a name for a branch or tag.")));
    }
    let object = |id: &str| id.bytes().any(|byte| byte != b'0').then(|| id.to_owned());
    Ok(Some(Update { name: name.to_owned(), old: object(old), new: object(new) }))
}

fn report(phase: Phase, updates: Vec<Update>) -> io::Result<()> {
    if updates.is_empty() {
        return Ok(());
    }
    let unavailable = |error: io::Error| io::Error::other(format!("The git node cannot record the push: {error}"));
    let variable = |name: &str| env::var_os(name).ok_or_else(|| unavailable(io::Error::other("it runs no such push")));
    let (socket, push): (OsString, OsString) = (variable(SOCKET)?, variable(PUSH)?);
    let push = push.into_string().map_err(|_| unavailable(io::Error::other("it runs no such push")))?;
    let step = serde_json::to_vec(&Step { push, phase, updates })?;
    let exchange = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(&step)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        if phase == Phase::Finished {
            // git sends this output to the client.
            io::copy(&mut stream, &mut io::stdout())?;
            return Ok(OK.to_owned());
        }
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    match exchange().map_err(unavailable)?.as_str() {
        OK => Ok(()),
        "" => Err(unavailable(io::Error::other("it stopped"))),
        message => Err(unavailable(io::Error::other(message.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const NONE: &str = "0000000000000000000000000000000000000000";

    #[test]
    fn updates_are_parsed() {
        let line = |old: &str, new: &str| parse(format!("{old} {new} refs/heads/a b\n").as_bytes()).unwrap();
        let created = line(NONE, A).unwrap();
        assert_eq!((created.name.as_str(), created.old, created.new.as_deref()), ("refs/heads/a b", None, Some(A)));
        assert_eq!(line(A, NONE).unwrap().new, None);
        let unchanged = line(A, A).unwrap();
        assert_eq!(unchanged.old, unchanged.new);
        assert_eq!(line(A, "ref:refs/heads/main"), None);
        for name in ["refs/heads/-x", "refs/tags/--upload-pack=x", "refs/heads/HEAD"] {
            assert!(parse(format!("{NONE} {A} {name}\n").as_bytes()).is_err(), "{name}");
            assert!(parse(format!("{A} {NONE} {name}\n").as_bytes()).is_ok(), "{name}");
        }
        assert!(parse(b"1111 2222\n").is_err() && parse(b"1111 2222 refs/\xff\n").is_err());
        assert!(parse(format!("{A} {NONE} {}\n", "n".repeat(1025)).as_bytes()).is_err());
    }
}
