//! The thread that starts processes.
//!
//! A process that is to end with its parent ends with the *thread* that started it, so that thread has to stay: not one
//! of a pool that shrinks. It ends with the spawner, and what still runs then ends with it.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub struct Spawner(mpsc::Sender<Order>);

struct Order {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

impl Spawner {
    /// A thread that starts processes which `runtime` looks after.
    pub fn start(runtime: Handle) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel::<Order>();
        thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            let _around = runtime.enter();
            for Order { mut command, reply } in queue {
                // Who no longer waits for the process drops it, and that kills it.
                let _ = reply.send(command.spawn());
            }
        })?;
        Ok(Self(orders))
    }

    pub async fn spawn(&self, mut command: Command) -> io::Result<Child> {
        command.kill_on_drop(true);
        let (reply, answer) = oneshot::channel();
        self.0.send(Order { command, reply }).map_err(io::Error::other)?;
        answer.await.map_err(io::Error::other)?
    }
}
