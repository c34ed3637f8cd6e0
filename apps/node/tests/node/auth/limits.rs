//! Limits: the rate of callbacks, and the size of the table of sessions.

use std::sync::Arc;
use std::time::Duration;

use node::auth::Pools;
use node::auth::upkeep::{self, Removed, SessionLimits};
use node::database::logins::Logins;
use node::database::registry::{Entry, Registry};
use node::database::server::{Credentials, Server};
use protocol::AuthBrand;
use reqwest::Method;
use sandbox::IdentityProvider::CodeHost;
use settings::Secret;
use testkit::PrivatePostgres;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use super::{HOST, PROJECT, Rig, user_id};
use crate::database::kit::{eventually, number};

/// Adds sessions that were used one second after the other. The last one was used now.
const ADD: &str = r#"
    INSERT INTO svc_auth.users (id, provider) VALUES ('00000000-0000-7000-8000-000000000001', 'codehost')
        ON CONFLICT DO NOTHING;
    INSERT INTO svc_auth.sessions (used_at, "grant", epoch, registration, user_id, state, token, provider)
    SELECT now() - number * interval '1 second', 1, 1, 1, '00000000-0000-7000-8000-000000000001', gen_random_uuid(),
        sha256(gen_random_uuid()::text::bytea), 'webaccount'
    FROM generate_series(0, $COUNT - 1) AS numbers (number)"#;

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_are_limited_per_client_and_can_be_repeated_later() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    let address = browser.begin(CodeHost, "/").await;
    let path = browser.choose(&address, "ada").await;
    for _ in 0..30 {
        let mut other = rig.browser().await;
        let address = other.begin(CodeHost, "/").await;
        let state = address.split("state=").nth(1).unwrap().split('&').next().unwrap();
        assert_eq!(other.get(&format!("/__svc/auth/callback/codehost?state={state}&code=bad")).await.status, 400);
    }
    let limited = browser.get(&path).await;
    assert!(limited.status == 429 && !limited.header("retry-after").is_empty(), "{}", limited.body);
    assert!(browser.cookies.keys().any(|name| name.starts_with("svc_auth_flow_")), "{:?}", browser.cookies);
    // Requests that cost nothing are not limited.
    let visitor = rig.visitor().await;
    assert_eq!(visitor.get(HOST, "/__svc/auth/login").await.status, 200);
    assert_eq!(browser.send(Method::GET, "/__svc/auth/session", &[]).await.status, 200);
}

/// The schema in a database without a node.
struct Store {
    _postgres: PrivatePostgres,
    client: Client,
    pools: Pools,
}

impl Store {
    async fn start() -> Option<Self> {
        let postgres = PrivatePostgres::start()?;
        let url = postgres.url();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let suffix = "0".repeat(26);
        for statement in [
            format!("CREATE ROLE db_{suffix}"),
            format!("CREATE DATABASE db_{suffix} OWNER db_{suffix}"),
            format!("CREATE ROLE auth_{suffix} LOGIN PASSWORD 'hush'"),
            format!("GRANT CREATE ON DATABASE db_{suffix} TO auth_{suffix}"),
        ] {
            client.batch_execute(&statement).await.unwrap();
        }
        let credentials = Arc::new(Credentials {
            address: Server::parse(&url).unwrap().address,
            database: format!("db_{suffix}"),
            user: format!("auth_{suffix}"),
            password: Secret::new("hush".to_owned()),
            role: format!("auth_{suffix}"),
        });
        let registry = Registry::default();
        let desired = Arc::new(crate::database::kit::database(format!("dbs_{suffix}")));
        let logins = Logins::Open { read_only: false };
        let backups = Arc::clone(&credentials);
        registry.set(Entry { project: "prj_1".to_owned(), desired, credentials: backups, logins });
        registry.open("prj_1", Arc::clone(&credentials), Arc::clone(&credentials));
        let pools = Pools::new(Some(registry));
        // Creates the schema.
        assert_eq!(pools.get("prj_1").user("sub_00000000000000000000000000").await.unwrap(), None);
        let mut config: tokio_postgres::Config = url.parse().unwrap();
        let (client, connection) = config.dbname(credentials.database.clone()).connect(NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Some(Self { _postgres: postgres, client, pools })
    }

    async fn add_sessions(&self, count: i64) {
        self.client.batch_execute(&ADD.replace("$COUNT", &count.to_string())).await.unwrap();
    }

    async fn clean(&self, limits: SessionLimits) -> Removed {
        upkeep::clean(&self.pools.get("prj_1"), &auth(), limits).await.unwrap()
    }

    async fn size(&self) -> i64 {
        number(&self.client, "SELECT pg_total_relation_size('svc_auth.sessions')").await
    }
}

fn auth() -> protocol::Auth {
    let provider = protocol::AuthProvider {
        provider: protocol::AuthProviderKind::Webaccount,
        registration: 1,
        client_id: "client".to_owned(),
        client_secret: protocol::SecretValue::new("hush".to_owned()),
    };
    let (brand, providers) = (AuthBrand::default(), vec![provider]);
    protocol::Auth { grant: 1, session_days: 30, brand, provider_revision: 1, providers }
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_sessions_are_removed_when_the_table_nears_its_limit() {
    let Some(store) = Store::start().await else { return };
    let limits = SessionLimits { max_bytes: 4_000_000 };
    let count = async || number(&store.client, "SELECT count(*) FROM svc_auth.sessions").await;
    store.add_sessions(5_000).await;
    assert_eq!(store.clean(limits).await, Removed::default());
    // The size per session that the limits expect is that of a real table.
    let filled = store.size().await;
    assert!(filled < 5_000 * 360, "{filled} bytes");
    // Far above the limit, as after a burst.
    store.add_sessions(20_000).await;
    let removed = store.clean(limits).await;
    let kept = count().await;
    assert!(removed.oldest > 15_000 && removed.ended == 0, "{removed:?}");
    let oldest = "SELECT extract(epoch FROM now() - min(used_at))::bigint FROM svc_auth.sessions";
    // Two sessions were used in each second, and the newest ones remain.
    let oldest = number(&store.client, oldest).await;
    assert!((kept / 2 - 60..=kept / 2 + 60).contains(&oldest), "{kept} sessions up to {oldest} s");
    assert!(store.size().await <= limits.max_bytes, "{}", store.size().await);
    // The space is reused: the table does not grow while as many sessions are removed as created.
    for _ in 0..5 {
        store.add_sessions(2_000).await;
        store.clean(limits).await;
        assert!(store.size().await <= limits.max_bytes, "{}", store.size().await);
    }
    assert!(count().await < 9_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_newer_state_are_kept() {
    let Some(store) = Store::start().await else { return };
    store.add_sessions(1).await;
    // The name of a row states the part that is newer or that has ended.
    let rows = r#"
        INSERT INTO svc_auth.sessions ("grant", epoch, registration, user_id, state, token, provider)
        SELECT "grant", epoch, registration, '00000000-0000-7000-8000-000000000001', gen_random_uuid(), name::bytea,
            provider
        FROM (VALUES ('newer grant', 2, 1, 1, 'webaccount'), ('newer epoch', 1, 2, 1, 'webaccount'),
            ('newer registration', 1, 1, 2, 'webaccount'), ('newer provider', 1, 1, 2, 'codehost'),
            ('ended grant', 0, 1, 1, 'webaccount'), ('ended epoch', 1, 0, 1, 'webaccount'),
            ('ended registration', 1, 1, 0, 'webaccount'), ('ended provider', 1, 1, 1, 'codehost'))
            AS rows (name, "grant", epoch, registration, provider);
        INSERT INTO svc_auth.identities (provider, subject, registration, user_id, client_id, first_client_id)
        SELECT provider, subject, registration, '00000000-0000-7000-8000-000000000001', 'client', 'client'
        FROM (VALUES ('webaccount', 'newer', 2), ('messenger', 'newer', 2), ('webaccount', 'current', 1),
            ('codehost', 'ended', 1), ('webaccount', 'ended', 0)) AS rows (provider, subject, registration)"#;
    store.client.batch_execute(rows).await.unwrap();
    let removed = store.clean(SessionLimits::default()).await;
    assert_eq!(removed, Removed { identities: 2, ended: 4, oldest: 0 });
    let ended = "SELECT count(*) FROM svc_auth.sessions WHERE position('ended'::bytea IN token) = 1";
    assert_eq!(number(&store.client, ended).await, 0);
    assert_eq!(number(&store.client, "SELECT count(*) FROM svc_auth.sessions").await, 5);
    assert_eq!(number(&store.client, "SELECT count(*) FROM svc_auth.identities WHERE subject = 'ended'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_keeps_the_sessions_that_were_used_last() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    assert_eq!(browser.sign_in(CodeHost, "ada", "/").await.status, 303);
    let admin = rig.superuser(&rig.name(PROJECT)).await;
    let add = r#"
        INSERT INTO svc_auth.sessions (used_at, "grant", epoch, registration, user_id, state, token, provider)
        SELECT now() - number * interval '1 hour', "grant", epoch, registration, user_id, gen_random_uuid(),
            sha256(number::text::bytea), provider
        FROM svc_auth.sessions, generate_series(1, 100) AS numbers (number)"#;
    admin.batch_execute(add).await.unwrap();
    let mut other = rig.browser().await;
    assert_eq!(other.sign_in(CodeHost, "ada", "/").await.status, 303);
    assert_eq!(number(&admin, "SELECT count(*) FROM svc_auth.sessions").await, 50);
    // The sessions of the two browsers, and those that were used 1 to 48 hours ago.
    let oldest = "SELECT extract(epoch FROM now() - min(used_at))::bigint / 3600 FROM svc_auth.sessions";
    assert_eq!(number(&admin, oldest).await, 48);
    assert_eq!(user_id(&mut browser).await, user_id(&mut other).await);
    // The sessions of other users stay.
    assert_eq!(rig.browser().await.sign_in(CodeHost, "grace", "/").await.status, 303);
    assert_eq!(number(&admin, "SELECT count(*) FROM svc_auth.sessions").await, 51);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_give_up_cause_no_further_connections() {
    let Some(store) = Store::start().await else { return };
    let pool = store.pools.get("prj_1");
    let count = async || {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'auth_%'";
        number(&store.client, count).await
    };
    // The idle connection is in use, so each caller opens one. It waits for the lock of a migration.
    let used = pool.session().await.unwrap();
    let hide = "SELECT pg_advisory_lock(8319946622921700456); ALTER SCHEMA svc_auth RENAME TO hidden";
    store.client.batch_execute(hide).await.unwrap();
    let (mut callers, mut max) = (0, 0);
    // On a busy machine, a connection opens after several callers have given up.
    while callers < 20 || max < 3 && callers < 1000 {
        callers += 1;
        let caller = timeout(Duration::from_millis(50), pool.session()).await;
        assert!(caller.is_err(), "the session does not wait");
        max = max.max(count().await);
    }
    assert!((3..=8).contains(&max), "{max} connections");
    let show = "ALTER SCHEMA hidden RENAME TO svc_auth; SELECT pg_advisory_unlock(8319946622921700456)";
    store.client.batch_execute(show).await.unwrap();
    // The connections are not lost.
    eventually("a session", async || pool.session().await.is_ok()).await;
    let reused = pool.session().await.unwrap();
    assert!(count().await <= 8);
    drop((used, reused));
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_table_is_not_written() {
    let Some(store) = Store::start().await else { return };
    store.add_sessions(10).await;
    // A write changes the position or a transaction id of a row. The counters of Postgres are late.
    let rows = async || {
        let rows = "SELECT string_agg(concat(tableoid, ctid, xmin, xmax), ',' ORDER BY tableoid, ctid) FROM (
            SELECT tableoid, ctid, xmin, xmax FROM svc_auth.users UNION ALL
            SELECT tableoid, ctid, xmin, xmax FROM svc_auth.identities UNION ALL
            SELECT tableoid, ctid, xmin, xmax FROM svc_auth.sessions) AS rows";
        store.client.query_one(rows, &[]).await.unwrap().get::<_, String>(0)
    };
    let before = rows().await;
    store.clean(SessionLimits::default()).await;
    assert_eq!(rows().await, before);
}
