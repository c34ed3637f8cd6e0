//! Unauthorized, invalid and malicious requests.

use std::time::{Duration, Instant};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::RecordType as Kind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::kit::{NOW, Rig, key, question, receive, send, signed, signer, transfer};

/// Returns the response code of the answer to a message over TCP.
async fn code(rig: &Rig, message: &[u8]) -> ResponseCode {
    let mut stream = rig.connect().await;
    send(&mut stream, message).await;
    Message::from_vec(&receive(&mut stream).await.unwrap()).unwrap().response_code
}

#[tokio::test]
async fn other_address_is_refused_despite_a_valid_signature() {
    let rig = Rig::start("192.0.2.1:53").await;
    rig.zone("example.org", 7, 1).await;
    for kind in [Kind::SOA, Kind::AXFR, Kind::A] {
        let (bytes, _) = signed(question("example.org.", kind, None), &key(), NOW);
        assert_eq!(code(&rig, &bytes).await, ResponseCode::Refused);
        let answer = rig.datagram(&bytes).await.unwrap();
        assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::Refused, 0));
    }
}

#[tokio::test]
async fn transfer_requires_a_valid_signature() {
    let rig = Rig::start("127.0.0.1:53").await;
    rig.zone("example.org", 7, 1).await;
    let axfr = || question("example.org.", Kind::AXFR, None);
    assert_eq!(code(&rig, &axfr().to_vec().unwrap()).await, ResponseCode::Refused);
    let other = signer(b"fedcba9876543210");
    let mut times = vec![(signed(axfr(), &other, NOW).0, 16)];
    times.extend([NOW - 301, NOW + 301].map(|at| (signed(axfr(), &key(), at).0, 18)));
    for (bytes, error) in times {
        assert_eq!(code(&rig, &bytes).await, ResponseCode::NotAuth);
        let mut stream = rig.connect().await;
        send(&mut stream, &bytes).await;
        let answer = receive(&mut stream).await.unwrap();
        let answer = dns::wire::Message::read(&answer).unwrap();
        let signature = answer.records.last().unwrap().data;
        // The data ends with the error code, the length of the "other data", and the other data, which has six bytes
        // for BADTIME.
        let end = signature.len() - if error == 18 { 10 } else { 4 };
        assert_eq!(signature[end..end + 2], u16::to_be_bytes(error));
    }
    // A secondary may query the serial without a signature.
    let answer = rig.datagram(&question("example.org.", Kind::SOA, None).to_vec().unwrap()).await.unwrap();
    assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::NoError, 1));
}

#[tokio::test]
async fn unsupported_requests_receive_their_response_code() {
    let rig = Rig::start("127.0.0.1:53").await;
    rig.zone("example.org", 7, 1).await;
    let sign = |message| signed(message, &key(), NOW).0;
    let mut notify = question("example.org.", Kind::SOA, None);
    notify.metadata.op_code = OpCode::Notify;
    let mut twice = question("example.org.", Kind::SOA, None);
    twice.add_query(twice.queries[0].clone());
    for (what, message, expected) in [
        ("an unknown zone", question("example.com.", Kind::AXFR, None), ResponseCode::NotAuth),
        ("a name in a zone", question("www.example.org.", Kind::SOA, None), ResponseCode::NotAuth),
        ("another type", question("example.org.", Kind::A, None), ResponseCode::Refused),
        ("an IXFR without a serial", question("example.org.", Kind::IXFR, None), ResponseCode::FormErr),
        ("two questions", twice, ResponseCode::FormErr),
        ("another opcode", notify, ResponseCode::NotImp),
    ] {
        assert_eq!(code(&rig, &sign(message)).await, expected, "{what}");
    }
    let axfr = rig.datagram(&sign(question("example.org.", Kind::AXFR, None))).await.unwrap();
    assert_eq!(axfr.response_code, ResponseCode::FormErr);
}

#[tokio::test]
async fn malformed_messages_end_at_most_their_connection() {
    let rig = Rig::start("127.0.0.1:53").await;
    rig.zone("example.org", 7, 1).await;
    let (good, _) = signed(question("example.org.", Kind::AXFR, None), &key(), NOW);
    let looped = [&good[..12], &[0xc0, 12, 0, 252, 0, 1]].concat();
    let many = [&good[..4], &[0xff; 8], &good[12..]].concat();
    for broken in [&good[..13], &good[..good.len() - 1], &looped, &many, &[&good[..], b"more"].concat()] {
        assert_eq!(code(&rig, broken).await, ResponseCode::FormErr);
        assert_eq!(rig.datagram(broken).await.unwrap().response_code, ResponseCode::FormErr);
    }
    // Responses and messages without an id are not answered: the connection ends.
    let answer = [&good[..2], &[good[2] | 0x80], &good[3..]].concat();
    for silent in [&answer[..], &good[..11], b""] {
        let mut stream = rig.connect().await;
        send(&mut stream, silent).await;
        assert_eq!(receive(&mut stream).await, None);
    }
    let mut stream = rig.connect().await;
    stream.write_all(&[0xff, 0xff, 0, 0]).await.unwrap();
    assert_eq!(receive(&mut stream).await, None, "longer than any request");
    let (_, records) = transfer(&mut rig.connect().await, question("example.org.", Kind::AXFR, None)).await;
    assert_eq!(records.len(), 4);
}

#[tokio::test]
async fn idle_connections_time_out_and_do_not_block_others() {
    let rig = Rig::start("127.0.0.1:53").await;
    rig.zone("example.org", 7, 1).await;
    let start = Instant::now();
    let mut idle = Vec::new();
    for number in 0..200 {
        let mut stream = rig.connect().await;
        // Some send an incomplete request.
        stream.write_all(&[0, 100, 1][..number % 4]).await.unwrap();
        idle.push(stream);
    }
    transfer(&mut rig.connect().await, question("example.org.", Kind::AXFR, None)).await;
    for stream in &mut idle {
        let mut byte = [0; 1];
        let end = timeout(Duration::from_secs(60), stream.read(&mut byte));
        assert_eq!(end.await.expect("the end of the connection").unwrap_or(0), 0);
    }
    assert!(start.elapsed() > Duration::from_secs(9), "{:?}", start.elapsed());
}
