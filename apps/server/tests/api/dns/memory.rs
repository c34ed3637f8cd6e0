//! The memory of a server that sends the largest zone.

use actix_web::web::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;

use crate::process::Process;
use crate::support::client;

const MIB: u64 = 1024 * 1024;

/// The largest zone of the largest plan: 100,000 rrsets, and almost 64 MiB of names and data. Each rrset has one TXT
/// record with strings of 255, 255 and 148 bytes.
const LARGEST_ZONE: &str = "\
    INSERT INTO dns.zones (id, org_id, name, path, serial, rrset_count, bytes, last_change_number, journal_bytes, \
        dnssec_state, ds, created_at) \
    SELECT gen_random_uuid(), id, 'large.example', 'example.large.', 7, 0, 0, 0, 0, 'off', '[]', now() FROM orgs.orgs; \
    INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata) \
    SELECT z.id, 'h' || n, convert_to('h' || n, 'UTF8') || '\\x00', 'TXT', 300, \
        '\\x0295'::bytea || '\\xff' || convert_to(repeat('x', 255), 'UTF8') || '\\xff' || convert_to(repeat('y', 255), 'UTF8') \
            || '\\x94' || convert_to(repeat('z', 148), 'UTF8') \
    FROM dns.zones z, generate_series(100000, 199999) n WHERE z.name = 'large.example'; \
    UPDATE dns.zones z SET (rrset_count, bytes) = (SELECT count(*), sum(octet_length(name) + octet_length(rdata)) \
        FROM dns.rrsets r WHERE r.zone_id = z.id) WHERE z.name = 'large.example'";

#[tokio::test(flavor = "multi_thread")]
async fn ten_parallel_reads_of_the_largest_zone_use_limited_memory() {
    let nameservers = ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned());
    let process = Process::with(&[nameservers]).await;
    let token = process.sign_in().await;
    process.database.run(LARGEST_ZONE).await;
    let zone = process.json(&token, "GET", "/v1/orgs/ada/dns/zones?limit=1", None).await["items"][0].clone();
    assert!((60 * MIB..64 * MIB).contains(&zone["bytes"].as_u64().unwrap()), "{zone}");

    let open = async |path: &str| {
        let url = format!("{}/v1/orgs/ada/dns/zones/large.example{path}", process.base);
        let response = client().get(url).bearer_auth(&token).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Read { body: response.bytes_stream().boxed(), length: 0, names: 0 }
    };
    let mut reads = join_all(["", "/zonefile"].into_iter().cycle().take(10).map(open)).await;
    join_all(reads.iter_mut().map(|read| read.advance(8 * MIB))).await;
    assert!(reads.iter().all(|read| read.length >= 8 * MIB));
    // The first read shows that a response is complete.
    let mut first = reads.swap_remove(0);
    first.advance(u64::MAX).await;
    assert!(first.length > 64 * MIB && first.names >= 100_000, "{} bytes, {} names", first.length, first.names);
    let peak = process.peak_memory();
    assert!(peak < 256 * MIB, "{} MiB", peak / MIB);
}

/// A response that is being received.
struct Read {
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    length: u64,
    /// The number of names of rrsets, which contain the only letters `h` of the body.
    names: usize,
}

impl Read {
    /// Receives the body up to this length or its end.
    async fn advance(&mut self, length: u64) {
        while self.length < length
            && let Some(chunk) = self.body.next().await
        {
            let chunk = chunk.unwrap();
            self.length += chunk.len() as u64;
            self.names += chunk.iter().filter(|byte| **byte == b'h').count();
        }
    }
}
