//! The resolver, against a name server with injected faults.

use std::collections::HashSet;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use providers::{LookupError, Resolver};
use sandbox::{DnsFault, DnsServer, RecordType};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A timeout that no lookup reaches if the name server responds.
const LONG_TIMEOUT: Duration = Duration::from_secs(20);
const SHORT_TIMEOUT: Duration = Duration::from_millis(500);

fn resolver(server: &DnsServer) -> Resolver {
    Resolver::new(Some(server.address())).unwrap()
}

async fn txt(server: &DnsServer, name: &str) -> Result<Vec<String>, LookupError> {
    let mut texts = resolver(server).txt(name, LONG_TIMEOUT).await?;
    texts.sort();
    Ok(texts)
}

async fn cname(server: &DnsServer, name: &str) -> Result<Option<String>, LookupError> {
    resolver(server).cname(name, LONG_TIMEOUT).await
}

fn owned(texts: &[&str]) -> Result<Vec<String>, LookupError> {
    Ok(texts.iter().map(|&text| text.to_owned()).collect())
}

#[tokio::test]
async fn txt_returns_the_records_of_the_name() {
    let server = DnsServer::start().await;
    server.set("_svc.a.example", RecordType::TXT, &["svc-proof=1"]);
    server.set("a.example", RecordType::TXT, &["v=spf1 -all", "svc-proof=1", ""]);
    assert_eq!(txt(&server, "_svc.a.example").await, owned(&["svc-proof=1"]));
    assert_eq!(txt(&server, "_svc.a.example.").await, owned(&["svc-proof=1"]));
    assert_eq!(txt(&server, "a.example").await, owned(&["", "svc-proof=1", "v=spf1 -all"]));
    assert_eq!(server.queries("_svc.a.example", RecordType::TXT), 2);
}

#[tokio::test]
async fn txt_joins_the_strings_of_a_record() {
    let server = DnsServer::start().await;
    server.set_strings("a.example", &[b"svc-", b"", b"proof=", b"1"]);
    assert_eq!(txt(&server, "a.example").await, owned(&["svc-proof=1"]));
    // One character is split between two strings, and one byte is invalid.
    server.set_strings("a.example", &[b"\xc3", b"\xbc\xff\""]);
    assert_eq!(txt(&server, "a.example").await, owned(&["ü\u{fffd}\""]));
    server.set_strings("a.example", &[b"a\0b\n"]);
    assert_eq!(txt(&server, "a.example").await, owned(&["a\u{fffd}b\u{fffd}"]));
    server.set("a.example", RecordType::TXT, &["x".repeat(300).as_str()]);
    assert_eq!(txt(&server, "a.example").await, owned(&["x".repeat(300).as_str()]));
}

#[tokio::test]
async fn txt_limits_the_records_and_their_size() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["x".repeat(600).as_str()]);
    assert_eq!(txt(&server, "a.example").await, owned(&["x".repeat(512).as_str()]));
    server.set("a.example", RecordType::TXT, &[format!("x{}", "ü".repeat(300)).as_str()]);
    assert_eq!(txt(&server, "a.example").await, owned(&[format!("x{}", "ü".repeat(255)).as_str()]));
    let many: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    server.set("a.example", RecordType::TXT, &many);
    assert_eq!(txt(&server, "a.example").await.unwrap().len(), 20);
}

#[tokio::test]
async fn long_response_is_read_over_tcp() {
    let server = DnsServer::start().await;
    let texts: Vec<String> = (0..9).map(|number| number.to_string().repeat(500)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    server.set("a.example", RecordType::TXT, &texts);
    assert_eq!(txt(&server, "a.example").await, owned(&texts));
    assert_eq!(server.queries("a.example", RecordType::TXT), 2);
}

#[tokio::test]
async fn lookups_are_not_cached() {
    let server = DnsServer::start().await;
    let resolver = resolver(&server);
    server.set("a.example", RecordType::SOA, &["ns.a.example hostmaster.a.example 1"]);
    assert_eq!(resolver.txt("_svc.a.example", LONG_TIMEOUT).await, Err(LookupError::NoSuchName));
    server.set("_svc.a.example", RecordType::TXT, &["1"]);
    assert_eq!(resolver.txt("_svc.a.example", LONG_TIMEOUT).await, owned(&["1"]));
    server.set("_svc.a.example", RecordType::TXT, &["2"]);
    assert_eq!(resolver.txt("_svc.a.example", LONG_TIMEOUT).await, owned(&["2"]));
    server.set("_svc.a.example", RecordType::TXT, &[]);
    assert_eq!(resolver.txt("_svc.a.example", LONG_TIMEOUT).await, Err(LookupError::NoSuchName));
    assert_eq!(server.queries("_svc.a.example", RecordType::TXT), 4);
}

#[tokio::test]
async fn name_without_records_differs_from_nonexistent_name() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::SOA, &["ns.a.example hostmaster.a.example 1"]);
    server.set("a.example", RecordType::NS, &["ns.a.example"]);
    server.set("www.a.example", RecordType::A, &["192.0.2.1"]);
    server.set("www.a.example", RecordType::AAAA, &["2001:db8::1"]);
    server.set("deep.below.a.example", RecordType::TXT, &["1"]);
    for name in ["a.example", "www.a.example", "below.a.example"] {
        assert_eq!(txt(&server, name).await, Ok(Vec::new()), "{name}");
        assert_eq!(cname(&server, name).await, Ok(None), "{name}");
    }
    for name in ["b.a.example", "b.example", "a.example.a.example"] {
        assert_eq!(txt(&server, name).await, Err(LookupError::NoSuchName), "{name}");
        assert_eq!(cname(&server, name).await, Err(LookupError::NoSuchName), "{name}");
    }
    assert_eq!(server.queries("b.example", RecordType::TXT), 1);
}

#[tokio::test]
async fn address_of_a_name_or_of_its_target_is_found() {
    let server = DnsServer::start().await;
    server.set("v4.a.example", RecordType::A, &["192.0.2.1"]);
    server.set("v6.a.example", RecordType::AAAA, &["2001:db8::1"]);
    server.set("alias.a.example", RecordType::CNAME, &["v6.a.example"]);
    server.set("dangling.a.example", RecordType::CNAME, &["none.a.example"]);
    server.set("text.a.example", RecordType::TXT, &["1"]);
    let resolver = resolver(&server);
    for name in ["v4.a.example", "v6.a.example", "alias.a.example"] {
        assert_eq!(resolver.has_address(name, LONG_TIMEOUT).await, Ok(true), "{name}");
    }
    assert_eq!(resolver.has_address("text.a.example", LONG_TIMEOUT).await, Ok(false));
    for name in ["none.a.example", "dangling.a.example"] {
        assert_eq!(resolver.has_address(name, LONG_TIMEOUT).await, Err(LookupError::NoSuchName), "{name}");
    }
}

#[tokio::test]
async fn cname_returns_the_target_without_a_lookup_of_it() {
    let server = DnsServer::start().await;
    server.set("www.a.example", RecordType::CNAME, &["Proof.Svc.Example."]);
    assert_eq!(cname(&server, "www.a.example").await, Ok(Some("proof.svc.example".to_owned())));
    assert_eq!(server.queries("proof.svc.example", RecordType::CNAME), 0);
    // The lookup returns only the first alias of a chain.
    server.set("proof.svc.example", RecordType::CNAME, &["edge.svc.example"]);
    assert_eq!(cname(&server, "www.a.example").await, Ok(Some("proof.svc.example".to_owned())));
}

#[tokio::test]
async fn ns_returns_the_records_of_the_name_itself() {
    let server = DnsServer::start().await;
    let ns = async |name: &str| {
        let mut targets = resolver(&server).ns(name, LONG_TIMEOUT).await?;
        targets.sort();
        Ok::<_, LookupError>(targets)
    };
    server.set("a.example", RecordType::NS, &["NS2.svc.example.", "ns1.Svc.example"]);
    assert_eq!(ns("A.example").await, owned(&["ns1.svc.example", "ns2.svc.example"]));
    assert_eq!(ns("www.a.example").await, Err(LookupError::NoSuchName));
    server.set("www.a.example", RecordType::A, &["192.0.2.1"]);
    assert_eq!(ns("www.a.example").await, Ok(Vec::new()));
    // An alias is not a delegation.
    server.set("b.example", RecordType::CNAME, &["a.example"]);
    assert_eq!(ns("b.example").await, Ok(Vec::new()));
    server.set_lame("a.example");
    assert_eq!(ns("www.a.example").await, Err(LookupError::ServerFailure));
    assert_eq!(ns("b.example").await, Ok(Vec::new()));
}

#[tokio::test]
async fn txt_follows_aliases() {
    let server = DnsServer::start().await;
    server.set("_svc.a.example", RecordType::CNAME, &["b.example"]);
    assert_eq!(txt(&server, "_svc.a.example").await, Err(LookupError::NoSuchName));
    server.set("b.example", RecordType::A, &["192.0.2.1"]);
    assert_eq!(txt(&server, "_svc.a.example").await, Ok(Vec::new()));
    server.set("b.example", RecordType::CNAME, &["C.example"]);
    server.set("c.example", RecordType::TXT, &["1"]);
    assert_eq!(txt(&server, "_svc.a.example").await, owned(&["1"]));
    // A circular alias has no records.
    server.set("c.example", RecordType::TXT, &[]);
    server.set("c.example", RecordType::CNAME, &["b.example"]);
    assert_eq!(txt(&server, "_svc.a.example").await, Ok(Vec::new()));
}

#[tokio::test]
async fn names_are_case_insensitive_and_ascii() {
    let server = DnsServer::start().await;
    server.set("_svc.xn--bcher-kva.example", RecordType::TXT, &["1"]);
    server.set("WWW.xn--bcher-kva.Example", RecordType::CNAME, &["xn--bcher-kva.example"]);
    assert_eq!(txt(&server, "_SVC.XN--Bcher-KVA.eXample").await, owned(&["1"]));
    let target = Ok(Some("xn--bcher-kva.example".to_owned()));
    assert_eq!(cname(&server, "wWw.xn--bcher-kva.example").await, target);
    let (label, long) = ("x".repeat(64), "x.".repeat(127) + "example");
    for name in ["", ".", "a..example", ".example", "a.example..", "bücher.example", "a b.example", r"\097.example"] {
        assert_eq!(txt(&server, name).await, Err(LookupError::InvalidName), "{name:?}");
    }
    for name in ["*.example", "a\0.example", "a.example\n", "a.example:53", "a/b.example", &label, &long] {
        assert_eq!(cname(&server, name).await, Err(LookupError::InvalidName), "{name:?}");
    }
}

#[tokio::test]
async fn special_use_names_are_not_sent_to_the_name_server() {
    let server = DnsServer::start().await;
    server.set("a.localhost", RecordType::TXT, &["1"]);
    server.set("a.invalid", RecordType::TXT, &["1"]);
    assert_eq!(txt(&server, "a.localhost").await, Ok(Vec::new()));
    assert_eq!(txt(&server, "a.invalid").await, Err(LookupError::NoSuchName));
    assert_eq!(server.queries("a.localhost", RecordType::TXT) + server.queries("a.invalid", RecordType::TXT), 0);
}

#[tokio::test]
async fn name_server_errors_are_transient() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["1"]);
    for (fault, error) in [
        (DnsFault::ServerFailure, LookupError::ServerFailure),
        (DnsFault::Refused, LookupError::Refused),
        (DnsFault::Garbage, LookupError::Malformed),
    ] {
        server.inject(Some(fault));
        assert_eq!(txt(&server, "a.example").await, Err(error));
        assert_eq!(cname(&server, "a.example").await, Err(error));
        assert!(error.is_transient());
    }
    server.inject(None);
    assert_eq!(txt(&server, "a.example").await, owned(&["1"]));
}

#[tokio::test]
async fn missing_and_unrelated_responses_time_out() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["1"]);
    let mut queries = 0;
    for fault in [DnsFault::Silent, DnsFault::WrongId, DnsFault::SilentUdp] {
        server.inject(Some(fault));
        let resolver = resolver(&server);
        let lookup = tokio::spawn(async move { resolver.txt("a.example", LONG_TIMEOUT).await });
        // Each attempt sends one query, and takes half of the timeout.
        for _ in 0..2 {
            queries += 1;
            until(|| server.queries("a.example", RecordType::TXT) == queries).await;
            assert!(!lookup.is_finished(), "{fault:?}");
            tokio::time::pause();
            tokio::time::advance(LONG_TIMEOUT / 2).await;
            tokio::time::resume();
        }
        assert_eq!(lookup.await.unwrap(), Err(LookupError::Timeout), "{fault:?}");
        assert_eq!(server.queries("a.example", RecordType::TXT), queries, "{fault:?}");
    }
}

#[tokio::test]
async fn lost_query_is_repeated() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["1"]);
    server.inject(Some(DnsFault::SilentUdp));
    let resolver = resolver(&server);
    let lookup = tokio::spawn(async move { resolver.txt("a.example", Duration::from_secs(4)).await });
    while server.queries("a.example", RecordType::TXT) == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    server.inject(None);
    assert_eq!(lookup.await.unwrap(), owned(&["1"]));
}

#[tokio::test]
async fn tcp_faults_are_reported() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["x".repeat(4000).as_str()]);
    server.inject(Some(DnsFault::CloseTcp));
    assert_eq!(txt(&server, "a.example").await, Err(LookupError::Unreachable));
    server.inject(Some(DnsFault::SilentTcp));
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert_eq!(resolver(&server).txt("a.example", SHORT_TIMEOUT).await, Err(LookupError::Timeout));
    until(|| Handle::current().metrics().num_alive_tasks() <= tasks + 1).await;
}

#[tokio::test]
async fn unreachable_name_server_is_reported() {
    // The listener reserves the port, so that no server of another test uses it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let resolver = Resolver::new(Some(listener.local_addr().unwrap())).unwrap();
    assert_eq!(resolver.txt("a.example", SHORT_TIMEOUT).await, Err(LookupError::Timeout));
    // The broadcast address is unreachable on every host.
    let resolver = Resolver::new(Some(SocketAddr::from(([255, 255, 255, 255], 53)))).unwrap();
    assert_eq!(resolver.txt("a.example", LONG_TIMEOUT).await, Err(LookupError::Unreachable));
}

#[tokio::test]
async fn name_server_can_have_an_ipv6_address() {
    // Not every host has an IPv6 address.
    let Ok(server) = DnsServer::start_on((Ipv6Addr::LOCALHOST, 0).into()).await else { return };
    server.set("a.example", RecordType::TXT, &["x".repeat(400).as_str(), "x".repeat(500).as_str(), "x"]);
    assert_eq!(txt(&server, "a.example").await.unwrap().len(), 3);
    server.set("a.example", RecordType::TXT, &["x".repeat(4000).as_str()]);
    assert_eq!(txt(&server, "a.example").await.unwrap().len(), 1);
}

#[tokio::test]
async fn system_name_servers_are_the_default() {
    let configuration = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let has_name_server = configuration.lines().any(|line| line.split_whitespace().next() == Some("nameserver"));
    assert_eq!(Resolver::new(None).is_ok(), has_name_server, "{configuration}");
}

/// The tests with many sockets run one after the other, because one of them counts the sockets of the process.
static MANY_SOCKETS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn concurrent_lookups_succeed() {
    let _alone = MANY_SOCKETS.lock().await;
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["1"]);
    let results = spawn_lookups(&resolver(&server), 300, LONG_TIMEOUT).join_all().await;
    assert!(results.iter().all(|result| *result == owned(&["1"])), "{results:?}");
}

#[tokio::test]
async fn concurrent_lookups_that_time_out_release_their_sockets() {
    let _alone = MANY_SOCKETS.lock().await;
    let server = DnsServer::start().await;
    server.inject(Some(DnsFault::Silent));
    let (open, tasks) = (udp_sockets(), Handle::current().metrics().num_alive_tasks());
    let lookups = spawn_lookups(&resolver(&server), 300, Duration::from_secs(3));
    // Other tests of this process have sockets, too.
    until(|| udp_sockets() >= open + 64).await;
    let during = udp_sockets();
    assert!(during < open + 220, "{open} and then {during}");
    let results = lookups.join_all().await;
    assert_eq!(results.len(), 300);
    assert!(results.iter().all(|result| *result == Err(LookupError::Timeout)), "{results:?}");
    until(|| Handle::current().metrics().num_alive_tasks() == tasks && udp_sockets() < open + 32).await;
}

fn spawn_lookups(resolver: &Resolver, count: usize, timeout: Duration) -> JoinSet<Result<Vec<String>, LookupError>> {
    let mut lookups = JoinSet::new();
    for _ in 0..count {
        let resolver = resolver.clone();
        lookups.spawn(async move { resolver.txt("a.example", timeout).await });
    }
    lookups
}

/// Returns the number of UDP sockets of this process.
fn udp_sockets() -> usize {
    let table = std::fs::read_to_string("/proc/self/net/udp").unwrap();
    let inodes: HashSet<_> = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)).collect();
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    let is_udp = |link: &PathBuf| {
        let inode = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    };
    links.filter(is_udp).count()
}

async fn until(condition: impl Fn() -> bool) {
    for _ in 0..200 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("the condition was not met in time");
}
