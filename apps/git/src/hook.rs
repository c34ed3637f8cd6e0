//! The hooks that `git receive-pack` runs. Each is the program `svc-git-hook` under another name. They send a request
//! to the node through its socket, and do nothing else.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _, stdin};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::update::Update;

/// The name of the program that git runs as hooks. It is in the folder of `svc-git`, and the node runs a copy.
pub(crate) const HOOK_PROGRAM: &str = "svc-git-hook";
/// The environment variable with the path of the node's socket.
pub(crate) const SOCKET: &str = "SVC_GIT_HOOK_SOCKET";
/// The environment variable with the id of the push.
pub(crate) const PUSH: &str = "SVC_GIT_HOOK_PUSH";

/// The maximum length of a line that git passes to a hook: two object ids and a name.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// The response of the node if it recorded the step.
pub(crate) const OK: &str = "ok";
/// The response of the node if it refuses the step. The node sends the reason to the client itself.
pub(crate) const REFUSED: &str = "refused";

/// Runs at each step of a transaction on refs. Records the transaction.
const REFERENCE_TRANSACTION: &str = "reference-transaction";
/// Runs after all updates of a push. Prints the result of the deploy.
const POST_RECEIVE: &str = "post-receive";

/// The hooks that run for a push. Each hook is a process, so a push runs only those that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookSet {
    /// The hooks that the journal needs.
    Journal,
    /// These, and the hook that prints the result of a deploy.
    Deploy,
}

impl HookSet {
    /// All sets.
    pub(crate) const ALL: [Self; 2] = [Self::Journal, Self::Deploy];

    /// Returns the name of the folder with the hooks of this set.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Journal => "hooks",
            Self::Deploy => "deploy-hooks",
        }
    }

    /// Returns the names that git gives to the hooks of this set.
    pub(crate) const fn hooks(self) -> &'static [&'static str] {
        match self {
            Self::Journal => &[REFERENCE_TRANSACTION],
            Self::Deploy => &[REFERENCE_TRANSACTION, POST_RECEIVE],
        }
    }
}

/// The hooks of one push.
#[derive(Debug, Clone, Copy)]
pub struct PushHooks<'a> {
    /// The id of the push.
    pub id: &'a str,
    pub set: HookSet,
}

/// The step of a push, or of one of its transactions (githooks(5), "reference-transaction" and "post-receive").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// All refs are locked. The transaction can still be aborted.
    Prepared,
    Committed,
    Aborted,
    /// The updates of the whole push that took effect.
    Finished,
}

/// A step of a transaction, as the hook reports it to the node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub push: String,
    pub phase: Phase,
    pub updates: Vec<Update>,
}

/// Runs the hook that git started with this name, with the step of a transaction, if git passed one.
#[must_use]
pub fn run(name: &Path, phase: Option<&str>) -> ExitCode {
    let phase = match (name.file_name().and_then(|name| name.to_str()), phase) {
        (Some(POST_RECEIVE), _) => Phase::Finished,
        (Some(REFERENCE_TRANSACTION), Some("prepared")) => Phase::Prepared,
        (Some(REFERENCE_TRANSACTION), Some("committed")) => Phase::Committed,
        (Some(REFERENCE_TRANSACTION), Some("aborted")) => Phase::Aborted,
        // Newer versions of git may have further steps.
        (Some(REFERENCE_TRANSACTION), _) => return ExitCode::SUCCESS,
        _ => {
            eprintln!("git starts this program for a push to svc-git.");
            return ExitCode::FAILURE;
        }
    };
    match read_updates().and_then(|updates| report(phase, updates)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn read_updates() -> io::Result<Vec<Update>> {
    let mut updates = Vec::new();
    let mut lines = BufReader::new(stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(updates);
        }
        // git also lists refs that it locks but does not change. They are skipped.
        let update = Update::parse(line.strip_suffix(b"\n").unwrap_or(&line)).map_err(io::Error::other)?;
        updates.extend(update.filter(|update| update.old != update.new));
    }
}

fn report(phase: Phase, updates: Vec<Update>) -> io::Result<ExitCode> {
    if updates.is_empty() {
        return Ok(ExitCode::SUCCESS);
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
        OK => Ok(ExitCode::SUCCESS),
        REFUSED => Ok(ExitCode::FAILURE),
        _ => Err(unavailable(io::Error::other("it stopped"))),
    }
}
