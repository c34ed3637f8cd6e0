//! `LISTEN` and `NOTIFY` as wake-ups. They carry no state: receivers read the tables again.

use std::time::Duration;

use diesel::sql_types::Text;
use diesel_async::RunQueryDsl as _;
use futures_util::StreamExt as _;
use kernel::error_chain;
use tokio::sync::broadcast;

use crate::{Connection, Prepared, Result, Store};

/// The pause before the first attempt to reconnect. It doubles with each failed attempt.
const MIN_PAUSE: Duration = Duration::from_millis(100);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Forwards the notifications of one channel to subscribers in this process.
#[derive(Debug)]
pub struct Listener {
    wakeups: broadcast::Sender<String>,
    task: tokio::task::JoinHandle<()>,
}

/// Notifies `channel` when the transaction commits. `payload` names the changed object.
pub async fn notify(connection: &mut Connection, channel: &str, payload: &str) -> Result<()> {
    let statement = diesel::sql_query("SELECT pg_notify($1, $2)").bind::<Text, _>(channel).bind::<Text, _>(payload);
    Prepared(statement).execute(connection).await?;
    Ok(())
}

impl Store {
    /// Listens on a channel over a dedicated connection, and reconnects until the listener is dropped.
    #[must_use]
    pub fn listen(&self, channel: &'static str) -> Listener {
        let (wakeups, _) = broadcast::channel(1024);
        let (store, sender) = (self.clone(), wakeups.clone());
        let task = tokio::spawn(async move {
            let mut pause = MIN_PAUSE;
            loop {
                let ended = match start_listening(&store, channel).await {
                    Ok(connection) => {
                        pause = MIN_PAUSE;
                        forward(connection, &sender).await
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = ended {
                    let error = error_chain(&*error).to_string();
                    tracing::warn!(channel, error, "lost the connection of LISTEN; reconnecting");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
        });
        Listener { wakeups, task }
    }
}

async fn start_listening(store: &Store, channel: &str) -> std::result::Result<Connection, BoxError> {
    let listening = async {
        let mut connection = store.connector().connect_for_notifications().await?;
        diesel::sql_query(format!("LISTEN {channel}")).execute(&mut connection).await?;
        Ok::<_, BoxError>(connection)
    };
    tokio::time::timeout(Duration::from_secs(3), listening).await?
}

/// Forwards notifications until the connection closes, which is usually an error.
async fn forward(mut connection: Connection, wakeups: &broadcast::Sender<String>) -> std::result::Result<(), BoxError> {
    // Earlier notifications are lost. An empty payload means that anything may have changed.
    drop(wakeups.send(String::new()));
    let mut notifications = std::pin::pin!(connection.notifications_stream());
    while let Some(notification) = notifications.next().await {
        drop(wakeups.send(notification?.payload));
    }
    Ok(())
}

impl Listener {
    /// Subscribes to future notifications. An empty payload and a lagging receiver both mean that anything may have
    /// changed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<String> {
        self.wakeups.subscribe()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
