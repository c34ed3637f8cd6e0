//! The memory of a server that sends the largest zone.

use futures_util::future::join_all;

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
        response
    };
    let mut reads = join_all(["", "/zonefile"].into_iter().cycle().take(10).map(open)).await;
    // All reads are now in progress. A server that reads ahead without a limit would fill its memory.
    join_all(reads.iter_mut().map(|response| receive(response, 4 * MIB))).await;
    let peak = process.peak_memory();
    assert!(peak < 256 * MIB, "{} MiB", peak / MIB);
}

/// Receives this many bytes of a response.
async fn receive(response: &mut reqwest::Response, length: u64) {
    let mut received = 0;
    while received < length {
        received += response.chunk().await.unwrap().expect("the zone is larger").len() as u64;
    }
}
