//! Servers that violate the protocol, and sessions that worker code has changed.

use std::sync::Arc;

use node::database::server::{Address, Credentials, Tls};
use settings::Secret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::rig::Rig;

/// The messages of a login without a password.
const LOGIN: &[u8] = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x01Z\0\0\0\x05I";
/// Completes a Parse, without parameters, with one column `a` of the type text.
const PARSED: &[u8] =
    b"1\0\0\0\x04t\0\0\0\x06\0\0T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";

#[tokio::test(flavor = "multi_thread")]
async fn server_that_violates_the_protocol_fails_the_call() {
    let Some(rig) = Rig::start().await else { return };
    for (name, login, response) in [
        ("closes", LOGIN, b"".to_vec()),
        ("no protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), Vec::new()),
        ("cleartext password", b"R\0\0\0\x08\0\0\0\x03", Vec::new()),
        ("unknown message", LOGIN, b"?\0\0\0\x04".to_vec()),
        ("negative length", LOGIN, b"1\xff\xff\xff\xff".to_vec()),
        ("long message", LOGIN, b"1\x7f\xff\xff\xff".to_vec()),
        ("long notice", LOGIN, [b"N\x7f\xff\xff\xff".as_slice(), &[b'x'; 1 << 20]].concat()),
        ("long error", LOGIN, [b"E\x00\x10\x00\x00".as_slice(), &[b'x'; 1 << 20]].concat()),
        ("row without columns", LOGIN, [PARSED, b"2\0\0\0\x04", b"D\0\0\0\x06\0\0"].concat()),
        ("row with a negative count", LOGIN, [PARSED, b"2\0\0\0\x04", b"D\0\0\0\x06\xff\xff"].concat()),
        ("value beyond its row", LOGIN, [PARSED, b"2\0\0\0\x04", b"D\0\0\0\x0a\0\x01\0\0\x10\0"].concat()),
        ("rows without a statement", LOGIN, b"D\0\0\0\x06\0\0".to_vec()),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let login = login.to_vec();
        let server = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                // The client may close the connection at any time.
                let _ = socket.read(&mut buffer).await;
                let _ = socket.write_all(&login).await;
                let _ = socket.read(&mut buffer).await;
                let _ = socket.write_all(&response).await;
            }
        });
        let address = Arc::new(Address { host: "127.0.0.1".to_owned(), port, tls: Tls::Off });
        let credentials = Credentials { address, password: Secret::new("hush".to_owned()), ..rig.credentials.clone() };
        rig.access.send_replace(node::database::registry::Connection::Open {
            generation: u64::from(port) + 10,
            credentials: Arc::new(credentials),
        });
        let (code, _) = rig.query("SELECT 1").await.unwrap_err();
        let expected = if name == "long error" { "XX000" } else { "database_unavailable" };
        assert_eq!(code, expected, "{name}");
        server.abort();
    }
    rig.reopen(1);
    assert_eq!(rig.value("SELECT 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_cannot_change_later_sessions() {
    let Some(rig) = Rig::start().await else { return };
    let before = rig.value("SELECT '2024-01-02'::timestamptz").await;
    // The tenant changes its own login, which Postgres may permit.
    let changes =
        ["SET ROLE NONE", "ALTER ROLE node_1 SET DateStyle = 'German'", "ALTER ROLE node_1 SET TimeZone = 'PST8PDT'"];
    for change in changes {
        let _ = rig.spawn(node::pg::Mode::Batch, Box::leak(Box::new(["SET LOCAL ROLE NONE", change]))).await.unwrap();
    }
    rig.query("ALTER DATABASE db_1 SET bytea_output = 'escape'").await.unwrap();
    rig.query("ALTER DATABASE db_1 SET statement_timeout = 1").await.unwrap();
    rig.reopen(2);
    assert_eq!(rig.value("SELECT '2024-01-02'::timestamptz").await, before);
    assert_eq!(rig.value(r"SELECT '\x00ff'::bytea").await, "AP8=");
    assert_eq!(rig.value("SELECT pg_sleep(0.1)::text").await, "");
    assert_eq!(rig.value("SELECT current_user::text").await, "db_1");
}

/// Tests that the node's lookup of a type, which runs in the session of the tenant, does not depend on the tenant's
/// search path.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_cannot_change_the_lookup_of_types() {
    let Some(rig) = Rig::start().await else { return };
    let mut statements = vec![
        "CREATE SCHEMA own".to_owned(),
        "CREATE TYPE own.mood AS ENUM ('sad')".to_owned(),
        "CREATE DOMAIN own.score AS int4".to_owned(),
        "CREATE TABLE own.pg_type (oid oid, typname name, typtype \"char\", typbasetype oid)".to_owned(),
        "CREATE FUNCTION own.unnest(oid[]) RETURNS SETOF oid LANGUAGE sql AS 'SELECT 23::oid'".to_owned(),
    ];
    for left in ["oid", "\"char\""] {
        statements
            .push(format!("CREATE FUNCTION own.attack({left}, {left}) RETURNS boolean LANGUAGE sql AS 'SELECT false'"));
        for operator in ["=", "<>"] {
            statements.push(format!(
                "CREATE OPERATOR own.{operator} (LEFTARG = {left}, RIGHTARG = {left}, FUNCTION = own.attack)"
            ));
        }
    }
    statements.push("ALTER DATABASE db_1 SET search_path = own, pg_catalog".to_owned());
    for statement in &statements {
        rig.query(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    rig.reopen(2);
    // The operators of the tenant still apply to its own statement.
    assert_eq!(rig.value("SELECT 1::oid = 1::oid").await, false);
    let result = rig.query("SELECT 'sad'::own.mood AS a, ARRAY[1::own.score] AS b").await.unwrap();
    let fields = &result["results"][0]["fields"];
    assert_eq!((&fields[0][1], &fields[1][1]), (&"mood".into(), &"score[]".into()), "{fields}");
}
