//! The thread that starts processes.
//!
//! The parent death signal is sent when the *thread* that started the process exits, so a thread of a shrinking pool
//! cannot start processes. This thread exits when the spawner is dropped, which also kills the remaining processes.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Sends commands to the thread.
pub struct Spawner(mpsc::Sender<SpawnRequest>);

struct SpawnRequest {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

impl Spawner {
    /// Starts the thread. `runtime` watches the processes.
    pub fn start(runtime: Handle) -> io::Result<Self> {
        let (requests, queue) = mpsc::channel::<SpawnRequest>();
        thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            let _context = runtime.enter();
            for SpawnRequest { mut command, reply } in queue {
                // If the receiver is gone, the child is dropped, which kills it.
                let _ = reply.send(command.spawn());
            }
        })?;
        Ok(Self(requests))
    }

    /// Starts a process, which is killed when the returned value is dropped.
    pub async fn spawn(&self, mut command: Command) -> io::Result<Child> {
        command.kill_on_drop(true);
        let (reply, response) = oneshot::channel();
        self.0.send(SpawnRequest { command, reply }).map_err(io::Error::other)?;
        response.await.map_err(io::Error::other)?
    }
}
