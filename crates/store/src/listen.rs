//! `LISTEN` and `NOTIFY` as wake-ups. They carry no state: receivers read the tables again.

use std::time::Duration;

use diesel::sql_types::Text;
use diesel_async::RunQueryDsl as _;
use futures_util::StreamExt as _;
use tokio::sync::broadcast;

use crate::{Connection, Prepared, Result, Store};

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
            let mut pause = Duration::from_millis(100);
            loop {
                match listen_once(&store, channel, &sender).await {
                    Ok(()) => pause = Duration::from_millis(100),
                    Err(error) => {
                        tracing::warn!(channel, error = %error, "lost the connection of LISTEN; reconnecting")
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
        });
        Listener { wakeups, task }
    }
}

/// Listens until the connection closes.
async fn listen_once(
    store: &Store,
    channel: &str,
    wakeups: &broadcast::Sender<String>,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let listening = async {
        let mut connection = store.connector().connect().await?;
        diesel::sql_query(format!("LISTEN {channel}")).execute(&mut connection).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(connection)
    };
    let mut connection = tokio::time::timeout(Duration::from_secs(3), listening).await??;
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
