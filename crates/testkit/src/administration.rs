//! Statements that create and drop databases in the test cluster. They run in sessions of the process, because a new
//! session costs nearly as much as such a statement.

use std::sync::LazyLock;

use diesel_async::pooled_connection::PoolableConnection as _;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use tokio::sync::{mpsc, oneshot};

use crate::database::Result;

/// A session that runs one statement at a time.
pub(crate) struct Administrator(mpsc::UnboundedSender<Request>);

struct Request {
    /// The URL of a database in the test cluster.
    url: String,
    statement: String,
    done: oneshot::Sender<Result<()>>,
}

/// Creates databases.
pub(crate) static CREATE: LazyLock<Administrator> = LazyLock::new(Administrator::start);

/// Drops databases, which can take long, because Postgres waits until the sessions of a database have ended.
pub(crate) static DROP: LazyLock<Administrator> = LazyLock::new(Administrator::start);

impl Administrator {
    /// Starts the thread of the session, which outlives the runtimes of all tests.
    fn start() -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(requests));
        });
        Self(sender)
    }

    /// Runs a statement.
    pub(crate) async fn run(&self, url: &str, statement: String) -> Result<()> {
        self.submit(url, statement).await?
    }

    /// Runs a statement, even if the caller does not wait for its result.
    pub(crate) fn submit(&self, url: &str, statement: String) -> oneshot::Receiver<Result<()>> {
        let (done, result) = oneshot::channel();
        // The thread ends only with the process.
        let _ = self.0.send(Request { url: url.to_owned(), statement, done });
        result
    }
}

async fn serve(mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut session: Option<AsyncPgConnection> = None;
    while let Some(Request { url, statement, done }) = requests.recv().await {
        let _ = done.send(run(&mut session, &url, &statement).await);
    }
}

async fn run(session: &mut Option<AsyncPgConnection>, url: &str, statement: &str) -> Result<()> {
    session.take_if(|session| session.is_broken());
    let mut current = match session.take() {
        Some(known) => known,
        None => AsyncPgConnection::establish(url).await?,
    };
    let result = current.batch_execute(statement).await;
    *session = Some(current);
    Ok(result?)
}
