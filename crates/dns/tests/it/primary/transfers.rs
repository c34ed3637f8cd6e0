//! SOA, AXFR and IXFR.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{RData, Record, RecordType as Kind};

use super::kit::{NOW, Rig, key, packed, question, receive, send, signed, transfer};

use dns::RecordType;

fn serials(records: &[Record]) -> Vec<u32> {
    let soa = records.iter().filter_map(|it| if let RData::SOA(soa) = &it.data { Some(soa.serial) } else { None });
    soa.collect()
}

#[tokio::test]
async fn large_zone_is_transferred_in_many_signed_messages() {
    let rig = Rig::start("127.0.0.1:53").await;
    rig.zone("example.org", 7, 5000).await;
    let mut stream = rig.connect().await;
    // Repeat on one connection, with another query in between.
    for _ in 0..2 {
        let (messages, records) = transfer(&mut stream, question("example.org.", Kind::AXFR, None)).await;
        assert_eq!(records.len(), 5000 + 1 + 2);
        assert!((4..20).contains(&messages), "{messages} messages");
        assert_eq!(serials(&records), [7, 7]);
        let mut names: Vec<String> = records.iter().map(|it| it.name.to_string()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5001);
        let (messages, records) = transfer(&mut stream, question("example.org.", Kind::SOA, None)).await;
        assert_eq!((messages, serials(&records)), (1, vec![7]));
    }
}

#[tokio::test]
async fn ixfr_uses_the_journal_and_falls_back_to_the_whole_zone() {
    let rig = Rig::start("127.0.0.1:53").await;
    rig.zone("example.org", 9, 2).await;
    let (one, two) = (packed(RecordType::A, "192.0.2.1"), packed(RecordType::A, "192.0.2.2"));
    rig.base
        .db_execute(&format!(
            "INSERT INTO dns.changes (zone_id, number, from_serial, to_serial, name, kind, old_ttl, old_rdata, new_ttl, new_rdata) \
             SELECT id, c.* FROM dns.zones, (VALUES \
                (1, 5, 7, 'www', 'A', NULL::integer, NULL::bytea, 300, '\\x{one}'::bytea), \
                (2, 5, 7, 'old', 'A', 300, '\\x{one}', NULL, NULL), \
                (3, 7, 9, 'www', 'A', 300, '\\x{one}', 300, '\\x{one}{two}')) c WHERE name = 'example.org'"
        ))
        .await;
    let mut stream = rig.connect().await;
    let summary = |records: &[Record]| -> Vec<String> {
        let short = |it: &Record| match &it.data {
            RData::SOA(soa) => soa.serial.to_string(),
            data => format!("{} {data}", it.name),
        };
        records.iter().map(short).collect()
    };
    let (_, records) = transfer(&mut stream, question("example.org.", Kind::IXFR, Some(5))).await;
    let all = ["9", "5", "old.example.org. 192.0.2.1", "7", "www.example.org. 192.0.2.1", "7", "9"];
    let all = [&all[..], &["www.example.org. 192.0.2.2", "9"]].concat();
    assert_eq!(summary(&records), all);
    let (_, records) = transfer(&mut stream, question("example.org.", Kind::IXFR, Some(7))).await;
    assert_eq!(summary(&records), ["9", "7", "9", "www.example.org. 192.0.2.2", "9"]);
    for current in [9, 10] {
        let (_, records) = transfer(&mut stream, question("example.org.", Kind::IXFR, Some(current))).await;
        assert_eq!(summary(&records), ["9"]);
    }
    for unknown in [4, 6, u32::MAX] {
        let (_, records) = transfer(&mut stream, question("example.org.", Kind::IXFR, Some(unknown))).await;
        assert_eq!((serials(&records), records.len()), (vec![9, 9], 2 + 1 + 2));
    }
    // An answer over UDP has only the SOA.
    let (bytes, _) = signed(question("example.org.", Kind::IXFR, Some(5)), &key(), NOW);
    assert_eq!(serials(&rig.datagram(&bytes).await.unwrap().answers), [9]);
}

#[tokio::test]
async fn catalog_is_served_under_its_configured_name() {
    let rig = Rig::start("127.0.0.1:53").await;
    let mut stream = rig.connect().await;
    let (_, records) = transfer(&mut stream, question("catalog.invalid.", Kind::AXFR, None)).await;
    let listed: Vec<String> =
        records[1..records.len() - 1].iter().map(|it| format!("{} {}", it.name, it.data)).collect();
    assert_eq!(listed, ["catalog.invalid. invalid.", "version.catalog.invalid. 2"]);
    // The catalog is stored with an empty name, and a query for the root must not return it.
    let (bytes, _) = signed(question(".", Kind::AXFR, None), &key(), NOW);
    send(&mut stream, &bytes).await;
    let answer = hickory_proto::op::Message::from_vec(&receive(&mut stream).await.unwrap()).unwrap();
    assert_eq!(answer.response_code, ResponseCode::NotAuth);
}
