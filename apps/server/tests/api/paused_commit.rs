//! `kill -9` of the control plane or of its Postgres while a transaction commits.
//!
//! A deferred trigger of the test pauses the transaction with `pg_sleep`.

use testkit::PrivatePostgres;

use crate::process::Process;
use crate::support::eventually;

/// Selects the paused transactions.
const PAUSED: &str = "FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

/// Pauses the commits of transactions that insert into this table, while the table `paused` has a row.
pub fn pause_inserts(table: &str) -> String {
    pause_commits("INSERT", table)
}

/// Pauses the commits of transactions that make a change of this kind in this table, while the table `paused` has a row.
pub fn pause_commits(kind: &str, table: &str) -> String {
    format!(
        "CREATE TABLE public.paused (is_paused boolean PRIMARY KEY);
        CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            WHILE EXISTS (SELECT FROM public.paused) LOOP PERFORM pg_sleep(0.01); END LOOP;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER pause AFTER {kind} ON {table}
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.pause();"
    )
}

#[derive(Debug, Clone, Copy)]
pub enum Crash {
    /// The server is killed, and its transaction is rolled back.
    ServerBeforeCommit,
    /// The server is killed while Postgres commits its transaction, so that its client gets no response.
    ServerDuringCommit,
    Postgres,
}

pub const CRASHES: [Crash; 3] = [Crash::ServerBeforeCommit, Crash::ServerDuringCommit, Crash::Postgres];

impl Crash {
    /// Waits for a paused transaction, and crashes a process. `release` is the statement that ends the pauses. Returns
    /// when the server is ready again.
    pub async fn hit(self, server: &mut Process, postgres: &mut PrivatePostgres, release: &str) {
        match self {
            Self::ServerBeforeCommit => crash_before_commit(server, release).await,
            Self::ServerDuringCommit => {
                wait_for_pause(server).await;
                server.kill();
                server.database.run(release).await;
                server.restart().await;
            }
            Self::Postgres => {
                wait_for_pause(server).await;
                postgres.kill();
                postgres.restart();
                server.database.run(release).await;
                server.wait_until_ready().await;
            }
        }
    }
}

/// Waits for a paused transaction, kills the server and rolls the transaction back. `release` is the statement that ends
/// the pauses. Returns when the server is ready again.
pub async fn crash_before_commit(server: &mut Process, release: &str) {
    wait_for_pause(server).await;
    server.kill();
    let terminate = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
                     WHERE application_name = 'svc-server' AND datname = current_database()";
    server.database.rows(terminate).await;
    server.database.run(release).await;
    server.restart().await;
}

async fn wait_for_pause(server: &Process) {
    eventually("a paused transaction", async || {
        (server.database.number(&format!("SELECT count(*) {PAUSED}")).await > 0).then_some(())
    })
    .await;
}
