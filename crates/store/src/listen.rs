//! `LISTEN` and `NOTIFY`: a wake-up, never a message. Whoever waits looks at the tables again.

use std::time::Duration;

use diesel::sql_types::Text;
use diesel_async::RunQueryDsl as _;
use futures_util::StreamExt as _;
use tokio::sync::broadcast;

use crate::{Cached, Connection, Result, Store};

/// Wakes waiters of this process when something was committed on a channel.
#[derive(Debug)]
pub struct Listener {
    signals: broadcast::Sender<String>,
    task: tokio::task::JoinHandle<()>,
}

/// Announces on `channel`, when and if the transaction commits, that what `payload` names has changed.
///
/// # Errors
/// When Postgres does not take the statement.
pub async fn notify(connection: &mut Connection, channel: &str, payload: &str) -> Result<()> {
    let statement = diesel::sql_query("SELECT pg_notify($1, $2)").bind::<Text, _>(channel).bind::<Text, _>(payload);
    Cached(statement).execute(connection).await?;
    Ok(())
}

impl Store {
    /// Listens on a channel with a connection of its own, reconnecting for as long as the listener lives.
    #[must_use]
    pub fn listen(&self, channel: &'static str) -> Listener {
        let (signals, _) = broadcast::channel(1024);
        let (store, sender) = (self.clone(), signals.clone());
        let task = tokio::spawn(async move {
            let mut pause = Duration::from_millis(100);
            loop {
                match listen_once(&store, channel, &sender).await {
                    Ok(()) => pause = Duration::from_millis(100),
                    Err(error) => tracing::warn!(channel, error = %error, "listening was interrupted"),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
        });
        Listener { signals, task }
    }
}

/// Listens until the connection ends.
async fn listen_once(
    store: &Store,
    channel: &str,
    signals: &broadcast::Sender<String>,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let listening = async {
        let mut connection = store.connector().connect().await?;
        diesel::sql_query(format!("LISTEN {channel}")).execute(&mut connection).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(connection)
    };
    let mut connection = tokio::time::timeout(Duration::from_secs(3), listening).await??;
    // Whatever was announced while nobody listened: an empty payload means "anything".
    drop(signals.send(String::new()));
    let mut notifications = std::pin::pin!(connection.notifications_stream());
    while let Some(notification) = notifications.next().await {
        drop(signals.send(notification?.payload));
    }
    Ok(())
}

impl Listener {
    /// What is announced from now on. A receiver that lags, and an empty payload, both mean that anything may have
    /// changed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<String> {
        self.signals.subscribe()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
