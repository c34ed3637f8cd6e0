//! What secondaries are told, and what becomes of one that does not listen.

use std::time::{Duration, Instant};

use dns::ZoneName;
use dns::notify::Notice;
use dns::primary::{Notifier, PrimaryConfig};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use kernel::{Time, World};
use store::outbox::{self, Deliver as _, Undelivered};
use testkit::TestClock;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::kit::key;

async fn secondary() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

fn notifier(secondaries: &[&UdpSocket]) -> Notifier {
    let config = PrimaryConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        key: "xfr:hmac-sha256:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap(),
        secondaries: secondaries.iter().map(|it| it.local_addr().unwrap()).collect(),
        catalog: ZoneName::stored("catalog.invalid".to_owned()),
    };
    Notifier::new(&config, TestClock::default().world()).unwrap()
}

fn letter(zone: &str, after_catalog: bool, attempts: i32) -> outbox::Message {
    let payload = serde_json::to_value(Notice { zone: Some(zone.to_owned()), after_catalog }).unwrap();
    let id = World::system().id();
    outbox::Message { id, key: zone.to_owned(), payload, attempts, created_at: Time::UNIX_EPOCH }
}

/// The next notice, answered with this code: the zone it is of.
async fn told(socket: &UdpSocket, code: ResponseCode) -> String {
    let mut buffer = [0; 1024];
    let (length, from) = timeout(Duration::from_secs(5), socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    let (_, at, _) = key().verify_message_byte(&buffer[..length], None, true).unwrap();
    assert_eq!(at, super::kit::NOW);
    let notice = Message::from_vec(&buffer[..length]).unwrap();
    assert_eq!((notice.op_code, notice.authoritative, notice.queries.len()), (OpCode::Notify, true, 1));
    let mut answer = Message::response(notice.id, OpCode::Notify);
    assert_eq!(answer.message_type, MessageType::Response);
    answer.metadata.response_code = code;
    answer.add_query(notice.queries[0].clone());
    socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
    notice.queries[0].name().to_string()
}

#[tokio::test]
async fn every_secondary_is_told_and_the_catalog_before_the_zone_whose_group_changes() {
    let (one, other) = (secondary().await, secondary().await);
    let notifier = notifier(&[&one, &other]);
    let letter = letter("example.org", true, 1);
    let start = Instant::now();
    let listen = async |socket: &UdpSocket| {
        assert_eq!(told(socket, ResponseCode::NoError).await, "catalog.invalid.");
        assert_eq!(told(socket, ResponseCode::NoError).await, "example.org.");
        assert!(start.elapsed() > Duration::from_millis(900));
    };
    let (delivered, (), ()) = tokio::join!(notifier.deliver(&letter), listen(&one), listen(&other));
    assert_eq!(delivered, Ok(()));
}

#[tokio::test]
async fn a_refusal_is_asked_about_again_and_then_taken() {
    let one = secondary().await;
    let notifier = notifier(&[&one]);
    for (attempt, is_told) in [(1, false), (2, false), (3, true)] {
        let letter = letter("example.org", false, attempt);
        let (delivered, _) = tokio::join!(notifier.deliver(&letter), told(&one, ResponseCode::NotAuth));
        assert_eq!(delivered.is_ok(), is_told, "attempt {attempt}: {delivered:?}");
    }
}

#[tokio::test]
async fn one_that_is_silent_is_told_twice_and_then_holds_nobody_up() {
    let (living, dead) = (secondary().await, secondary().await);
    let notifier = notifier(&[&living, &dead]);
    let mut waited = Vec::new();
    for attempt in 1..4 {
        let letter = letter("example.org", false, attempt);
        let start = Instant::now();
        let (delivered, zone) = tokio::join!(notifier.deliver(&letter), told(&living, ResponseCode::NoError));
        assert_eq!(zone, "example.org.");
        let Err(Undelivered::Later(reason)) = delivered else { unreachable!("{delivered:?}") };
        let (living, dead) = (living.local_addr().unwrap().to_string(), dead.local_addr().unwrap().to_string());
        assert!(reason.contains(&dead) && !reason.contains(&living), "{reason}");
        waited.push(start.elapsed());
    }
    assert!(waited[0] > Duration::from_millis(1900), "{waited:?}");
    assert!(waited[1..].iter().all(|waited| *waited < Duration::from_millis(500)), "{waited:?}");
    // It was told all the same: twice, then once each.
    let mut buffer = [0; 1024];
    let mut notices = 0;
    while timeout(Duration::from_millis(100), dead.recv(&mut buffer)).await.is_ok() {
        notices += 1;
    }
    assert_eq!(notices, 4);
    // After an hour's attempts its refresh is left to itself.
    let letter = letter("example.org", false, 18);
    let (delivered, _) = tokio::join!(notifier.deliver(&letter), told(&living, ResponseCode::NoError));
    assert_eq!(delivered, Ok(()));
}

#[tokio::test]
async fn what_names_no_zone_is_no_notice() {
    let notifier = notifier(&[]);
    let refused = notifier.deliver(&letter("no zone", false, 1)).await;
    assert!(matches!(refused, Err(Undelivered::Never(_))), "{refused:?}");
}
