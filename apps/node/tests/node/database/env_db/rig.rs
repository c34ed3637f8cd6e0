//! A pool of `env.db` with its own Postgres cluster, without the rest of the node.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use node::database::registry::Connection;
use node::database::server::{Credentials, Server};
use node::pg::{Call, CallMetrics, Limits, Mode, Pool, Result as PgResult};
use prometheus::Registry;
use serde_json::{Value, json};
use settings::Secret;
use testkit::PrivatePostgres;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

const PASSWORD: &str = "hush";

/// The result of a call: the JSON, or the code and message of the error.
pub type Outcome = Result<Value, (String, String)>;

pub struct Rig {
    pub postgres: PrivatePostgres,
    /// A session of the superuser.
    pub admin: Client,
    pub access: watch::Sender<Connection>,
    pub pool: Arc<Pool>,
    pub credentials: Credentials,
}

impl Rig {
    /// Starts a rig with the limits of a node. Returns `None` without the programs of Postgres.
    pub async fn start() -> Option<Self> {
        Self::start_with(Limits::default()).await
    }

    pub async fn start_with(limits: Limits) -> Option<Self> {
        let postgres = PrivatePostgres::start()?;
        let admin = connect(&postgres).await;
        for statement in [
            "CREATE ROLE db_1",
            "CREATE DATABASE db_1 OWNER db_1",
            &format!("CREATE ROLE node_1 LOGIN NOINHERIT PASSWORD '{PASSWORD}' IN ROLE db_1"),
            "ALTER ROLE node_1 SET role = 'db_1'",
        ] {
            admin.batch_execute(statement).await.unwrap();
        }
        let credentials = Credentials {
            address: Server::parse(&postgres.url()).unwrap().address,
            database: "db_1".to_owned(),
            user: "node_1".to_owned(),
            password: Secret::new(PASSWORD.to_owned()),
            role: "db_1".to_owned(),
        };
        let access = watch::Sender::new(open(1, &credentials));
        let metrics = CallMetrics::new(&Registry::new()).unwrap();
        let pool = Pool::new("prj_1", access.subscribe(), limits, metrics);
        Some(Self { postgres, admin, access, pool, credentials })
    }

    /// Executes a statement without parameters.
    pub async fn query(&self, text: &str) -> Outcome {
        run(&self.pool, Mode::Query, &[text]).await
    }

    /// Executes statements in the background.
    pub fn spawn(&self, mode: Mode, statements: &'static [&'static str]) -> JoinHandle<Outcome> {
        let pool = Arc::clone(&self.pool);
        tokio::spawn(async move { run(&pool, mode, statements).await })
    }

    /// Executes a call with this body.
    pub async fn call(&self, mode: Mode, body: String) -> Outcome {
        execute(&self.pool, mode, body).await
    }

    /// Begins a call with this body. Returns the chunks of its result.
    pub fn begin(&self, mode: Mode, body: impl Into<Bytes>) -> mpsc::Receiver<PgResult<Bytes>> {
        self.begin_as("usr_1", mode, body)
    }

    /// Like [`Self::begin`], for a project of this owner.
    pub fn begin_as(&self, owner: &str, mode: Mode, body: impl Into<Bytes>) -> mpsc::Receiver<PgResult<Bytes>> {
        begin(&self.pool, owner, mode, body.into())
    }

    /// Returns the first value of the first row.
    pub async fn value(&self, text: &str) -> Value {
        self.query(text).await.unwrap()["results"][0]["rows"][0][0].clone()
    }

    /// Opens the access again, as the registry does after each change.
    pub fn reopen(&self, generation: u64) {
        self.access.send_replace(open(generation, &self.credentials));
    }

    /// Returns the number of sessions of the pool whose state and statement match.
    pub async fn sessions(&self, condition: &str) -> i64 {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = 'node_1' AND {condition}");
        self.admin.query_one(&count, &[]).await.unwrap().get(0)
    }

    /// Waits until this number of sessions match.
    pub async fn wait_for_sessions(&self, condition: &str, count: i64) {
        let reached = async {
            while self.sessions(condition).await != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(30), reached).await;
        assert!(reached.is_ok(), "not {count} sessions with {condition}");
    }
}

/// The condition of [`Rig::sessions`] for a statement that sleeps.
pub const SLEEPING: &str = "state = 'active' AND query LIKE '%pg_sleep%'";

fn open(generation: u64, credentials: &Credentials) -> Connection {
    Connection::Open { generation, credentials: Arc::new(credentials.clone()) }
}

async fn run(pool: &Arc<Pool>, mode: Mode, statements: &[&str]) -> Outcome {
    let statements: Vec<Value> = statements.iter().map(|text| json!({ "text": text, "params": [] })).collect();
    execute(pool, mode, Value::from(statements).to_string()).await
}

fn begin(pool: &Arc<Pool>, owner: &str, mode: Mode, body: Bytes) -> mpsc::Receiver<PgResult<Bytes>> {
    pool.call(Call { owner: owner.to_owned(), mode, body, memory: None })
}

async fn execute(pool: &Arc<Pool>, mode: Mode, body: String) -> Outcome {
    let mut chunks = begin(pool, "usr_1", mode, body.into());
    let mut json = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        json.extend_from_slice(&chunk.map_err(|error| (error.code().to_owned(), error.to_string()))?);
    }
    let result: Value = serde_json::from_slice(&json).unwrap();
    match &result["error"] {
        Value::Null => Ok(result),
        error => Err((error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())),
    }
}

async fn connect(postgres: &PrivatePostgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}
