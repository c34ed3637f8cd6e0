//! Delivery of notices, and unresponsive secondaries.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dns::ZoneName;
use dns::notify::Notice;
use dns::primary::{Notifier, PrimaryConfig};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use kernel::{ClockRng, Time};
use store::outbox::{self, DeliveryError, OutboxHandler as _};
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
        catalog: ZoneName::new_unchecked("catalog.invalid".to_owned()),
    };
    Notifier::new(&config, TestClock::default().clock_rng()).unwrap()
}

fn queued_notice(zone: &str, after_catalog: bool, attempts: i32) -> outbox::Message {
    let payload = serde_json::to_value(Notice { zone: Some(zone.to_owned()), after_catalog }).unwrap();
    let id = ClockRng::system().id();
    outbox::Message {
        id,
        key: zone.to_owned(),
        payload,
        attempts,
        created_at: Time::UNIX_EPOCH,
        failing_since: None,
        response: OnceLock::new(),
    }
}

/// Receives the next notice and answers with this code. Returns the zone of the notice.
async fn receive_notice(socket: &UdpSocket, code: ResponseCode) -> String {
    let mut buffer = [0; 1024];
    let (length, from) = timeout(Duration::from_secs(60), socket.recv_from(&mut buffer)).await.unwrap().unwrap();
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
async fn group_change_notifies_all_secondaries_of_the_catalog_first() {
    let (one, other) = (secondary().await, secondary().await);
    let notifier = notifier(&[&one, &other]);
    let message = queued_notice("example.org", true, 1);
    let start = Instant::now();
    let listen = async |socket: &UdpSocket| {
        assert_eq!(receive_notice(socket, ResponseCode::NoError).await, "catalog.invalid.");
        assert_eq!(receive_notice(socket, ResponseCode::NoError).await, "example.org.");
        assert!(start.elapsed() > Duration::from_millis(900));
    };
    let (delivered, (), ()) = tokio::join!(notifier.deliver(&message), listen(&one), listen(&other));
    assert_eq!(delivered, Ok(()));
}

#[tokio::test]
async fn refused_notice_is_retried_and_then_dropped() {
    let one = secondary().await;
    let notifier = notifier(&[&one]);
    for (attempt, is_delivered) in [(1, false), (2, false), (3, true)] {
        let message = queued_notice("example.org", false, attempt);
        let (delivered, _) = tokio::join!(notifier.deliver(&message), receive_notice(&one, ResponseCode::NotAuth));
        assert_eq!(delivered.is_ok(), is_delivered, "attempt {attempt}: {delivered:?}");
    }
}

#[tokio::test]
async fn unresponsive_secondary_delays_only_the_first_notice() {
    let (living, dead) = (secondary().await, secondary().await);
    let notifier = notifier(&[&living, &dead]);
    let mut waited = Vec::new();
    for attempt in 1..7 {
        let message = queued_notice("example.org", false, attempt);
        let start = Instant::now();
        let (delivered, zone) =
            tokio::join!(notifier.deliver(&message), receive_notice(&living, ResponseCode::NoError));
        assert_eq!(zone, "example.org.");
        let Err(DeliveryError::Transient(reason)) = delivered else { unreachable!("{delivered:?}") };
        let (living, dead) = (living.local_addr().unwrap().to_string(), dead.local_addr().unwrap().to_string());
        assert!(reason.contains(&dead) && !reason.contains(&living), "{reason}");
        waited.push(start.elapsed());
    }
    assert!(waited[0] > Duration::from_millis(1900), "{waited:?}");
    // A busy machine may delay some of the later deliveries.
    assert!(waited[1..].iter().any(|waited| *waited < Duration::from_millis(500)), "{waited:?}");
    // The unresponsive secondary receives all notices: the first delivery sends two messages, later ones send one.
    let mut buffer = [0; 1024];
    let mut notices = 0;
    while timeout(Duration::from_millis(100), dead.recv(&mut buffer)).await.is_ok() {
        notices += 1;
    }
    assert_eq!(notices, 7);
    // After an hour of attempts, delivery gives up.
    let message = queued_notice("example.org", false, 18);
    let (delivered, _) = tokio::join!(notifier.deliver(&message), receive_notice(&living, ResponseCode::NoError));
    assert_eq!(delivered, Ok(()));
}

#[tokio::test]
async fn notice_with_an_invalid_name_fails_permanently() {
    let notifier = notifier(&[]);
    let refused = notifier.deliver(&queued_notice("no zone", false, 1)).await;
    assert!(matches!(refused, Err(DeliveryError::Permanent(_))), "{refused:?}");
}
