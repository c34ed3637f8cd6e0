//! The resolver against a name server that answers, refuses, lies and is silent.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use providers::{LookupError, Resolver};
use sandbox::{DnsFault, DnsServer, RecordType};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// More than any of these look-ups takes when it is answered.
const PATIENT: Duration = Duration::from_secs(20);
const IMPATIENT: Duration = Duration::from_millis(500);

fn resolver(server: &DnsServer) -> Resolver {
    Resolver::new(Some(server.address())).unwrap()
}

async fn txt(server: &DnsServer, name: &str) -> Result<Vec<String>, LookupError> {
    let mut texts = resolver(server).txt(name, PATIENT).await?;
    texts.sort();
    Ok(texts)
}

async fn cname(server: &DnsServer, name: &str) -> Result<Option<String>, LookupError> {
    resolver(server).cname(name, PATIENT).await
}

fn owned(texts: &[&str]) -> Result<Vec<String>, LookupError> {
    Ok(texts.iter().map(|&text| text.to_owned()).collect())
}

#[tokio::test]
async fn texts() {
    let server = DnsServer::start().await;
    server.set("_svc.a.example", RecordType::TXT, &["svc-proof=1"]);
    server.set("a.example", RecordType::TXT, &["v=spf1 -all", "svc-proof=1", ""]);
    assert_eq!(txt(&server, "_svc.a.example").await, owned(&["svc-proof=1"]));
    assert_eq!(txt(&server, "_svc.a.example.").await, owned(&["svc-proof=1"]));
    assert_eq!(txt(&server, "a.example").await, owned(&["", "svc-proof=1", "v=spf1 -all"]));
    assert_eq!(server.queries("_svc.a.example", RecordType::TXT), 2);
}

#[tokio::test]
async fn a_text_of_several_strings() {
    let server = DnsServer::start().await;
    server.set_strings("a.example", &[b"svc-", b"", b"proof=", b"1"]);
    assert_eq!(txt(&server, "a.example").await, owned(&["svc-proof=1"]));
    // A character is cut in two by the strings, and another byte belongs to none.
    server.set_strings("a.example", &[b"\xc3", b"\xbc\xff\""]);
    assert_eq!(txt(&server, "a.example").await, owned(&["ü\u{fffd}\""]));
    server.set("a.example", RecordType::TXT, &["x".repeat(300).as_str()]);
    assert_eq!(txt(&server, "a.example").await, owned(&["x".repeat(300).as_str()]));
}

#[tokio::test]
async fn what_is_told_is_bounded() {
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
async fn a_long_answer_comes_over_tcp() {
    let server = DnsServer::start().await;
    let texts: Vec<String> = (0..9).map(|number| number.to_string().repeat(500)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    server.set("a.example", RecordType::TXT, &texts);
    assert_eq!(txt(&server, "a.example").await, owned(&texts));
    assert_eq!(server.queries("a.example", RecordType::TXT), 2);
}

#[tokio::test]
async fn nothing_is_remembered() {
    let server = DnsServer::start().await;
    let resolver = resolver(&server);
    server.set("a.example", RecordType::SOA, &["ns.a.example hostmaster.a.example 1"]);
    assert_eq!(resolver.txt("_svc.a.example", PATIENT).await, Err(LookupError::NoSuchName));
    server.set("_svc.a.example", RecordType::TXT, &["1"]);
    assert_eq!(resolver.txt("_svc.a.example", PATIENT).await, owned(&["1"]));
    server.set("_svc.a.example", RecordType::TXT, &["2"]);
    assert_eq!(resolver.txt("_svc.a.example", PATIENT).await, owned(&["2"]));
    server.set("_svc.a.example", RecordType::TXT, &[]);
    assert_eq!(resolver.txt("_svc.a.example", PATIENT).await, Err(LookupError::NoSuchName));
    assert_eq!(server.queries("_svc.a.example", RecordType::TXT), 4);
}

#[tokio::test]
async fn a_name_without_such_a_record_is_not_one_that_does_not_exist() {
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
async fn an_alias_is_told_and_its_target_not_asked_for() {
    let server = DnsServer::start().await;
    server.set("www.a.example", RecordType::CNAME, &["Proof.Svc.Example."]);
    assert_eq!(cname(&server, "www.a.example").await, Ok(Some("proof.svc.example".to_owned())));
    assert_eq!(server.queries("proof.svc.example", RecordType::CNAME), 0);
    // The first of a chain.
    server.set("proof.svc.example", RecordType::CNAME, &["edge.svc.example"]);
    assert_eq!(cname(&server, "www.a.example").await, Ok(Some("proof.svc.example".to_owned())));
}

#[tokio::test]
async fn texts_behind_an_alias() {
    let server = DnsServer::start().await;
    server.set("_svc.a.example", RecordType::CNAME, &["b.example"]);
    assert_eq!(txt(&server, "_svc.a.example").await, Err(LookupError::NoSuchName));
    server.set("b.example", RecordType::A, &["192.0.2.1"]);
    assert_eq!(txt(&server, "_svc.a.example").await, Ok(Vec::new()));
    server.set("b.example", RecordType::CNAME, &["C.example"]);
    server.set("c.example", RecordType::TXT, &["1"]);
    assert_eq!(txt(&server, "_svc.a.example").await, owned(&["1"]));
    // In a circle there is nothing.
    server.set("c.example", RecordType::TXT, &[]);
    server.set("c.example", RecordType::CNAME, &["b.example"]);
    assert_eq!(txt(&server, "_svc.a.example").await, Ok(Vec::new()));
}

#[tokio::test]
async fn names_are_compared_without_case_and_are_ascii() {
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
async fn names_that_are_kept_from_name_servers() {
    let server = DnsServer::start().await;
    server.set("a.localhost", RecordType::TXT, &["1"]);
    server.set("a.invalid", RecordType::TXT, &["1"]);
    assert_eq!(txt(&server, "a.localhost").await, Ok(Vec::new()));
    assert_eq!(txt(&server, "a.invalid").await, Err(LookupError::NoSuchName));
    assert_eq!(server.queries("a.localhost", RecordType::TXT) + server.queries("a.invalid", RecordType::TXT), 0);
}

#[tokio::test]
async fn a_server_that_cannot_or_will_not() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["1"]);
    for (trouble, error) in [
        (DnsFault::ServerFailure, LookupError::ServerFailure),
        (DnsFault::Refused, LookupError::Refused),
        (DnsFault::Garbage, LookupError::Malformed),
    ] {
        server.inject(Some(trouble));
        assert_eq!(txt(&server, "a.example").await, Err(error));
        assert_eq!(cname(&server, "a.example").await, Err(error));
        assert!(error.is_temporary());
    }
    server.inject(None);
    assert_eq!(txt(&server, "a.example").await, owned(&["1"]));
}

#[tokio::test]
async fn silence_and_answers_to_other_questions_end_in_time() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["1"]);
    for (asked, trouble) in [DnsFault::Silent, DnsFault::WrongId, DnsFault::SilentUdp].into_iter().enumerate() {
        server.inject(Some(trouble));
        let start = Instant::now();
        assert_eq!(resolver(&server).txt("a.example", IMPATIENT).await, Err(LookupError::Timeout), "{trouble:?}");
        assert!((IMPATIENT..PATIENT / 2).contains(&start.elapsed()), "{trouble:?}: {:?}", start.elapsed());
        // Once in each half.
        assert_eq!(server.queries("a.example", RecordType::TXT), 2 * (asked + 1), "{trouble:?}");
    }
}

#[tokio::test]
async fn a_lost_question_is_asked_again() {
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
async fn trouble_over_tcp() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["x".repeat(4000).as_str()]);
    server.inject(Some(DnsFault::CloseTcp));
    assert_eq!(txt(&server, "a.example").await, Err(LookupError::Unreachable));
    server.inject(Some(DnsFault::SilentTcp));
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert_eq!(resolver(&server).txt("a.example", IMPATIENT).await, Err(LookupError::Timeout));
    until(|| Handle::current().metrics().num_alive_tasks() <= tasks + 1).await;
}

#[tokio::test]
async fn nobody_listens() {
    // Its port is kept from the other tests' servers, which want it for TCP too.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let resolver = Resolver::new(Some(listener.local_addr().unwrap())).unwrap();
    assert_eq!(resolver.txt("a.example", IMPATIENT).await, Err(LookupError::Timeout));
    // No machine has a way to this one.
    let resolver = Resolver::new(Some(SocketAddr::from(([255, 255, 255, 255], 53)))).unwrap();
    assert_eq!(resolver.txt("a.example", PATIENT).await, Err(LookupError::Unreachable));
}

#[tokio::test]
async fn a_server_with_an_ipv6_address() {
    // Not every machine has one.
    let Ok(server) = DnsServer::start_on((Ipv6Addr::LOCALHOST, 0).into()).await else { return };
    server.set("a.example", RecordType::TXT, &["x".repeat(400).as_str(), "x".repeat(500).as_str(), "x"]);
    assert_eq!(txt(&server, "a.example").await.unwrap().len(), 3);
    server.set("a.example", RecordType::TXT, &["x".repeat(4000).as_str()]);
    assert_eq!(txt(&server, "a.example").await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_systems_name_servers() {
    // Where a machine has none, it says so.
    let made = Resolver::new(None).map(drop).map_err(|error| error.to_string());
    assert!(made.as_ref().is_err_and(|error| error.contains("name server")) || made.is_ok(), "{made:?}");
}

#[tokio::test]
async fn hundreds_of_lookups_at_once() {
    let server = DnsServer::start().await;
    server.set("a.example", RecordType::TXT, &["1"]);
    let results = at_once(&resolver(&server), 300, PATIENT).join_all().await;
    assert!(results.iter().all(|result| *result == owned(&["1"])), "{results:?}");
}

#[tokio::test]
async fn hundreds_of_lookups_at_once_in_silence() {
    let server = DnsServer::start().await;
    server.inject(Some(DnsFault::Silent));
    let (open, tasks) = (descriptors(), Handle::current().metrics().num_alive_tasks());
    let lookups = at_once(&resolver(&server), 300, Duration::from_secs(3));
    sleep(Duration::from_secs(1)).await;
    // The other tests have some too.
    let during = descriptors();
    assert!((open + 64..open + 220).contains(&during), "{open} and then {during}");
    let results = lookups.join_all().await;
    assert_eq!(results.len(), 300);
    assert!(results.iter().all(|result| *result == Err(LookupError::Timeout)), "{results:?}");
    until(|| Handle::current().metrics().num_alive_tasks() == tasks && descriptors() < open + 32).await;
}

fn at_once(resolver: &Resolver, count: usize, patience: Duration) -> JoinSet<Result<Vec<String>, LookupError>> {
    let mut lookups = JoinSet::new();
    for _ in 0..count {
        let resolver = resolver.clone();
        lookups.spawn(async move { resolver.txt("a.example", patience).await });
    }
    lookups
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn until(condition: impl Fn() -> bool) {
    for _ in 0..200 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not come to that");
}
