//! One run of a worker.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::assets::Registration;
use super::definition::Definition;
use super::folder::{Folder, HTTP, Opened, PROBE, Socket};
use super::launch;
use super::output::Output;
use super::uids::Uid;
use super::watchdog::probe;
use super::workers::Workers;
use crate::index::Index;

/// Requests and WebSockets at once. Each takes two of the node's open files.
const MOST_IN_FLIGHT: usize = 1000;

/// How long a start may take.
const START: Duration = Duration::from_secs(10);

/// A process that answers, or did.
pub struct Process {
    pub pid: u32,
    pub began: Instant,
    sockets: OnceLock<Sockets>,
    kill: Arc<Notify>,
    verdict: Mutex<Option<Ending>>,
    usage: watch::Sender<Usage>,
    ended: watch::Receiver<Option<ExitStatus>>,
    output: Output,
}

/// How a process came to its end.
#[derive(Debug, Clone)]
pub enum Ending {
    /// Nobody needed it any more.
    Done,
    /// Not as it should; in words for the project's people.
    Crashed(String),
}

/// Where it answers requests, and the watchdog. Known once it has answered.
struct Sockets {
    http: Socket,
    probe: Socket,
}

#[derive(Clone, Copy)]
pub struct Usage {
    in_flight: usize,
    last: Instant,
    closed: bool,
}

/// A request's hold on a process.
pub struct Lease(Arc<Process>);

/// What outlives the process for as long as it takes to be sure that it is gone.
struct Held {
    _folder: Folder,
    _uid: Option<Uid>,
    _assets: Registration,
}

impl Process {
    /// Starts the worker's code and waits until it answers; else says why it does not.
    pub async fn start(workers: &Arc<Workers>, project: &str, index: &Arc<Index>) -> Result<Arc<Self>, String> {
        let (process, opened) = Self::spawn(workers, project, index).await.map_err(|error| {
            tracing::error!(project, error = format!("{error:#}"), "a worker cannot be started");
            "The node could not start it.".to_owned()
        })?;
        let mut ended = process.ended.clone();
        let ready = async {
            loop {
                match opened.answering().await {
                    Ok(sockets) => return sockets,
                    Err(_) => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let came = tokio::select! {
            _ = ended.wait_for(Option::is_some) => Err("It ended while it started"),
            came = timeout(START, ready) => came.map_err(|_| "It did not answer within 10 seconds of its start"),
        };
        let why = match came {
            Ok(sockets) => {
                process.sockets.get_or_init(|| sockets);
                return Ok(process);
            }
            Err(why) => why,
        };
        process.kill(Ending::Done);
        let _ = ended.wait_for(Option::is_some).await;
        let words = process.output.last_words().await;
        Err(if words.is_empty() { format!("{why}.") } else { words })
    }

    async fn spawn(workers: &Arc<Workers>, project: &str, index: &Arc<Index>) -> anyhow::Result<(Arc<Self>, Opened)> {
        let uid = workers.uids.take()?;
        let assets = workers.registry.register(Arc::clone(index));
        let (folder, opened, uid, assets) = {
            let (workers, index) = (Arc::clone(workers), Arc::clone(index));
            let make = move || {
                let code = index.code.as_ref().context("no code")?;
                let definition = Definition::new(code, assets.key());
                let number = uid.as_ref().map(|uid| uid.number);
                let folder = workers.run.folder(&workers.cache, &definition, number)?;
                let opened = folder.opened(number)?;
                anyhow::Ok((folder, opened, uid, assets))
            };
            spawn_blocking(make).await??
        };
        let mut command = launch::command(&workers.config, folder.path(), uid.as_ref().map(|uid| uid.number));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = workers.spawner.spawn(command).await.context("spawning")?;
        let output = Output::follow(&mut child, project);
        let pid = child.id().context("it ended at once")?;
        let kill = Arc::new(Notify::new());
        let (end, ended) = watch::channel(None);
        let held = Held { _folder: folder, _uid: uid, _assets: assets };
        tokio::spawn(keep(child, Arc::clone(&kill), end, held));
        let (began, verdict) = (Instant::now(), Mutex::new(None));
        let (usage, _) = watch::channel(Usage { in_flight: 0, last: began, closed: false });
        let sockets = OnceLock::new();
        Ok((Arc::new(Self { pid, began, sockets, kill, verdict, usage, ended, output }), opened))
    }

    /// Lets a request in, unless the process is about to end or has.
    pub fn lease(self: &Arc<Self>) -> Option<Lease> {
        let admit = |usage: &mut Usage| {
            if !usage.closed {
                usage.in_flight += 1;
                usage.last = Instant::now();
            }
            !usage.closed
        };
        (self.ended.borrow().is_none() && self.usage.send_if_modified(admit)).then(|| Lease(Arc::clone(self)))
    }

    /// Whether so many wait for it that one more would be too many.
    pub fn is_full(&self) -> bool {
        self.usage.borrow().in_flight >= MOST_IN_FLIGHT
    }

    /// Ends it now.
    pub fn kill(&self, ending: Ending) {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(ending);
        self.usage.send_modify(|usage| usage.closed = true);
        self.kill.notify_one();
    }

    /// Ends it if nobody has asked it anything for so long.
    pub fn end_when_idle(&self, idle: Duration) {
        let close = |usage: &mut Usage| {
            usage.closed |= usage.in_flight == 0 && usage.last.elapsed() >= idle;
            usage.closed
        };
        if self.usage.send_if_modified(close) {
            self.kill(Ending::Done);
        }
    }

    /// Whether somebody asks it something, or did within this time.
    pub fn was_used_within(&self, time: Duration) -> bool {
        let usage = self.usage.borrow();
        usage.in_flight > 0 || usage.last.elapsed() < time
    }

    /// Waits until nobody waits for it.
    pub async fn drained(&self) {
        // The sender is in this process.
        let _ = self.usage.subscribe().wait_for(|usage| usage.in_flight == 0).await;
    }

    /// Waits for its end.
    pub async fn ended(&self) -> Ending {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.map_or(None, |status| *status);
        let verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(ending) = verdict {
            return ending;
        }
        let words = self.output.last_words().await;
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        Ending::Crashed(format!("It ended by itself ({status}). {words}").trim_end().to_owned())
    }

    /// Whether it answers the watchdog.
    pub async fn probe(&self) -> io::Result<()> {
        probe(&self.sockets()?.probe).await
    }

    fn sockets(&self) -> io::Result<&Sockets> {
        self.sockets.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Opened {
    /// Its sockets, if it answers.
    async fn answering(&self) -> io::Result<Sockets> {
        let asked = self.socket(PROBE)?;
        probe(&asked).await?;
        Ok(Sockets { http: self.socket(HTTP)?, probe: asked })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill.notify_one();
    }
}

impl Lease {
    /// A connection for a request.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        self.0.sockets()?.http.connect().await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.usage.send_modify(|usage| {
            usage.in_flight -= 1;
            usage.last = Instant::now();
        });
    }
}

/// Waits for the process, ends it when asked to, and only then gives back what it had.
async fn keep(mut child: Child, kill: Arc<Notify>, end: watch::Sender<Option<ExitStatus>>, held: Held) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = kill.notified() => {
            // Of one that has ended meanwhile, there is nothing to kill.
            let _ = child.start_kill();
            child.wait().await
        }
    };
    let _ = spawn_blocking(move || drop(held)).await;
    end.send_replace(Some(status.unwrap_or_default()));
}
