//! Short reads that share the connection of a thread.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::{Double, Integer};
use diesel_async::RunQueryDsl as _;
use futures_util::future::join_all;
use kernel::{ApiError as _, ClockRng, Code, Secret, error_chain};
use store::{Config, Prepared, Result, Store};
use testkit::TestDatabase;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::kit::{Kit, rows};
use super::pool::on_server_thread;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Integer)]
    number: i32,
    #[diesel(sql_type = Integer)]
    pid: i32,
}

/// Reads a number, and the process id of the backend that serves the statement.
async fn read(store: &Store, number: usize) -> Result<Row> {
    let query = diesel::sql_query(format!("SELECT {number} AS number, pg_backend_pid() AS pid"));
    store.lookup(async |connection| Ok(query.get_result(&mut &*connection).await?)).await
}

/// What happens to a connection, after a delay.
#[derive(Clone, Copy)]
enum Accept {
    Serve(Duration),
    Close(Duration),
}

/// Longer than a request waits for a connection.
const SLOW: Duration = Duration::from_millis(700);

/// Serves a database at another address. `accept` receives the number of the connection, from 0. Returns the URL.
async fn serve(database: &str, accept: fn(usize) -> Accept) -> Secret {
    let database: tokio_postgres::Config = database.parse().unwrap();
    let socket = crate::tls::socket(&database);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (user, name) = (database.get_user().unwrap(), database.get_dbname().unwrap());
    let url = format!("postgres://{user}@{}/{name}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for number in 0.. {
            let (mut client, _) = listener.accept().await.unwrap();
            let socket = socket.clone();
            tokio::spawn(async move {
                match accept(number) {
                    Accept::Serve(delay) => {
                        sleep(delay).await;
                        let mut server = UnixStream::connect(socket).await.unwrap();
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                    Accept::Close(delay) => sleep(delay).await,
                }
            });
        }
    });
    Secret::new(url)
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_a_thread_share_a_connection_and_get_their_own_rows() {
    let kit = Kit::divided(8, 2).await;
    let pids = on_server_thread(&kit.store, async |store| {
        let rows = join_all((0..300).map(|number| read(store, number))).await;
        let pids = rows.into_iter().enumerate().map(|(number, row)| {
            let row = row.unwrap();
            assert_eq!(row.number, i32::try_from(number).unwrap());
            row.pid
        });
        pids.collect::<BTreeSet<_>>()
    });
    assert_eq!(pids.len(), 1);
    assert_eq!(kit.store.status().open, 0);
    // A thread without its own connections uses the pool.
    assert_eq!(read(&kit.store, 7).await.unwrap().number, 7);
    assert_eq!(kit.store.status().open, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_for_lookups_is_replaced() {
    let kit = Kit::divided(8, 2).await;
    on_server_thread(&kit.store, async |store| {
        let first = read(store, 1).await.unwrap().pid;
        let end = diesel::sql_query(format!("SELECT pg_terminate_backend({first}) AS number, 0 AS pid"));
        let lost = store.lookup(async |connection| Ok(end.execute(&mut &*connection).await?)).await;
        assert_eq!(lost.unwrap_err().code(), &Code::UNAVAILABLE);
        let second = loop {
            // The task that reads the messages may not have ended yet.
            match read(store, 2).await {
                Ok(row) => break row,
                Err(error) => assert_eq!(error.code(), &Code::UNAVAILABLE),
            }
        };
        assert!(second.number == 2 && second.pid != first);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_connection_does_not_run_its_remaining_statements() {
    let kit = Kit::divided(8, 2).await;
    on_server_thread(&kit.store, async |store| {
        let pid = read(store, 1).await.unwrap().pid;
        // The statement is prepared first, so that the others are sent without a wait.
        let wait = async |seconds: f64| {
            let wait = Prepared(diesel::sql_query("SELECT FROM pg_sleep($1)").bind::<Double, _>(seconds));
            store.lookup(async |connection| Ok(wait.execute(&mut &*connection).await?)).await
        };
        wait(0.0).await.unwrap();
        assert!(join_all((0..8).map(|_| wait(1.5))).await.iter().any(Result::is_err));
        // The statements would take ten more seconds. Postgres checks each second whether the client is connected.
        let backend = format!("SELECT pid FROM pg_stat_activity WHERE pid = {pid}");
        let ended = async {
            while !rows(&mut store.connection().await.unwrap(), &backend).await.unwrap().is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(5), ended).await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_attempt_to_connect_continues_after_its_caller_gives_up() {
    let database = TestDatabase::create().await;
    let url = serve(&database.url(), |_| Accept::Serve(SLOW)).await;
    let config = Config { connections: 8, threads: 2, ..Config::new(url, "test") };
    let store = Store::new(&config, ClockRng::system()).unwrap();
    on_server_thread(&store, async |store| {
        assert_eq!(read(store, 1).await.map(drop).unwrap_err().code(), &Code::UNAVAILABLE);
        let served = async { while read(store, 2).await.is_err() {} };
        timeout(Duration::from_secs(20), served).await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_an_abandoned_attempt_to_connect_is_not_reported_to_the_next_caller() {
    let database = TestDatabase::create().await;
    let accept = |number: usize| if number == 0 { Accept::Close(SLOW) } else { Accept::Serve(Duration::ZERO) };
    let url = serve(&database.url(), accept).await;
    let config = Config { connections: 8, threads: 2, ..Config::new(url, "test") };
    let store = Store::new(&config, ClockRng::system()).unwrap();
    on_server_thread(&store, async |store| {
        assert_eq!(read(store, 1).await.map(drop).unwrap_err().code(), &Code::UNAVAILABLE);
        sleep(2 * SLOW).await;
        let served = async {
            loop {
                // On a busy machine, a connection opens after several callers have given up.
                match read(store, 2).await {
                    Ok(row) => break row,
                    Err(error) => assert!(error_chain(&error).to_string().contains("no place"), "{error:?}"),
                }
            }
        };
        assert_eq!(timeout(Duration::from_secs(20), served).await.unwrap().number, 2);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_or_abandoned_lookup_does_not_affect_the_others() {
    let kit = Kit::divided(8, 2).await;
    on_server_thread(&kit.store, async |store| {
        let fail = diesel::sql_query("SELECT 1 / 0 AS number, 0 AS pid");
        let fail = store.lookup(async |connection| Ok(fail.execute(&mut &*connection).await?));
        let sleep = diesel::sql_query("SELECT 1 AS number, 0 AS pid FROM pg_sleep(1)");
        let sleep = store.lookup(async |connection| Ok(sleep.execute(&mut &*connection).await?));
        let abandoned = timeout(Duration::from_millis(100), sleep);
        let (failed, abandoned, row) = tokio::join!(fail, abandoned, read(store, 3));
        assert!(failed.is_err() && abandoned.is_err());
        assert_eq!(row.unwrap().number, 3);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn mean_of_lookups_contains_their_waits_since_the_last_mean() {
    let kit = Kit::divided(8, 2).await;
    on_server_thread(&kit.store, async |store| {
        let run = |statement: &'static str| {
            let query = diesel::sql_query(statement);
            store.lookup(async move |connection| Ok(query.execute(&mut &*connection).await?))
        };
        let sleep = || run("SELECT pg_sleep(0.01)");
        assert!(join_all((0..9).map(|_| sleep())).await.iter().all(Result::is_ok));
        assert!(run("SELECT 1 / 0").await.is_err());
        assert_eq!(store.take_mean_lookup(), None);
        assert!(sleep().await.is_ok());
        // Each of the nine waits for those before it.
        assert!(store.take_mean_lookup().unwrap() >= Duration::from_millis(45));
        assert_eq!(store.take_mean_lookup(), None);
    });
}
