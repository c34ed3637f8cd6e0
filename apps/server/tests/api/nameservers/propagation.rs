//! Propagation of zones from the API to all nameservers.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use super::query::query_twice;
use super::rig::Rig;
use crate::support::client;

#[tokio::test(flavor = "multi_thread")]
async fn nameservers_serve_a_zone_and_its_changes_until_it_is_deleted() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer("www.example.org", "A", &["192.0.2.1"]).await;
    rig.all_answer("example.org", "NS", &["ns1.svc.example.", "ns2.svc.example.", "ns3.svc.example."]).await;

    for round in 2..8 {
        let address = format!("192.0.2.{round}");
        rig.put("example.org", "www", "A", &[&address]).await;
        rig.all_answer("www.example.org", "A", &[&address]).await;
    }
    // Escapes in a TXT record are preserved.
    let text = r#""a \"quoted\" \\ \000\255; $ORIGIN .""#;
    rig.put("example.org", "txt", "TXT", &[text]).await;
    rig.put("example.org", "mail", "MX", &["10 mx", "20 mx.example.net."]).await;
    rig.all_answer("mail.example.org", "MX", &["10 mx.example.org.", "20 mx.example.net."]).await;
    for daemon in rig.daemons() {
        let server = format!("@127.0.0.1 -p {} txt.example.org TXT +short", daemon.port);
        let output = rig.packages.run("bin/kdig", &server.split(' ').collect::<Vec<_>>());
        assert_eq!(output.trim(), r#""a \"quoted\" \\ \000\255; $ORIGIN .""#);
    }
    rig.send("DELETE", "/example.org/rrsets/mail/MX", "", String::new()).await;
    rig.all_answer("mail.example.org", "MX", &[]).await;

    rig.send("DELETE", "/example.org", "", String::new()).await;
    rig.until("the zone is gone", async || {
        rig.knot.query("www.example.org", "A").await.is_refused()
            && rig.bind.query("www.example.org", "A").await.is_refused()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_with_ten_thousand_rrsets_is_transferred_completely() {
    let Some(rig) = Rig::start().await else { return };
    rig.zone("large.example").await;
    let lines = (0..10_000).map(|number| format!("host-{number} 300 A 10.{}.{}.7\n", number / 250, number % 250));
    rig.send("PUT", "/large.example/zonefile", "text/dns", lines.collect()).await;
    rig.all_answer("host-9999.large.example", "A", &["10.39.249.7"]).await;
    for daemon in rig.daemons() {
        let names = stream::iter(0..10_000).map(async |number| {
            let answer = query_twice(daemon.port, &format!("host-{number}.large.example"), "A").await;
            assert!(answer.is(&[&format!("10.{}.{}.7", number / 250, number % 250)]), "host-{number}: {answer:?}");
        });
        names.buffer_unordered(16).collect::<Vec<()>>().await;
    }
    let key = super::daemon::TSIG.split_once(':').unwrap();
    let key = format!("{}:{}:{}", "hmac-sha256", key.0, key.1.split_once(':').unwrap().1);
    for daemon in [&rig.knot, &rig.bind] {
        let port = daemon.port.to_string();
        let arguments = ["@127.0.0.1", "-p", &port, "-y", &key, "large.example", "AXFR", "+noall", "+answer"];
        let output = rig.packages.run("bin/kdig", &arguments);
        // The output also contains three NS records, and the SOA record at its start and end.
        assert_eq!(output.lines().filter(|line| line.contains("\tIN\t")).count(), 10_000 + 3 + 2);
    }
    rig.put("large.example", "host-1", "A", &["192.0.2.9"]).await;
    rig.all_answer("host-1.large.example", "A", &["192.0.2.9"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_nameserver_catches_up() {
    let Some(mut rig) = Rig::start().await else { return };
    rig.zone("example.org").await;
    rig.all_answer("www.example.org", "A", &["192.0.2.1"]).await;
    rig.knot.kill();
    rig.bind.kill();
    rig.nsd.kill();
    rig.put("example.org", "www", "A", &["192.0.2.2"]).await;
    rig.call("POST", "", Some(json!({ "name": "new.example" }))).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.put("example.org", "www", "A", &["192.0.2.3"]).await;
    rig.knot.restart();
    rig.bind.restart();
    rig.nsd.restart();
    rig.all_answer("www.example.org", "A", &["192.0.2.3"]).await;
    rig.until("the new zone is served", async || {
        rig.knot.query("new.example", "NS").await.data.len() == 3
            && rig.bind.query("new.example", "NS").await.data.len() == 3
    })
    .await;

    // A nameserver that stays down does not stop the others.
    rig.bind.kill();
    rig.put("example.org", "www", "A", &["192.0.2.4"]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for round in 5..10 {
        let address = format!("192.0.2.{round}");
        rig.put("example.org", "www", "A", &[&address]).await;
        let arrived = async || rig.knot.query("www.example.org", "A").await.is(&[&address]);
        rig.until("Knot serves the change", arrived).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_thousand_zones_created_concurrently_are_all_served() {
    let Some(rig) = Rig::start().await else { return };
    rig.server.database.run("UPDATE orgs.orgs SET plan = 'pro'").await;
    let start = Instant::now();
    let (client, url) = (client(), format!("{}/v1/orgs/ada/dns/zones", rig.server.base));
    let creations = stream::iter(0..1000).map(async |number| {
        let zone = json!({ "name": format!("zone-{number}.example") });
        // The service makes four changes of an organization at a time. Another one that waits too long must be repeated.
        for _ in 0..10 {
            let status = client.post(&url).bearer_auth(&rig.token).json(&zone).send().await.unwrap().status().as_u16();
            if status != 503 {
                return status;
            }
        }
        503
    });
    let statuses: Vec<u16> = creations.buffer_unordered(4).collect().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let created = start.elapsed();
    for (name, daemon) in [("Knot", &rig.knot), ("BIND", &rig.bind)] {
        for number in 0..1000 {
            let zone = format!("zone-{number}.example");
            rig.until(&format!("{name} serves {zone}"), async || daemon.query(&zone, "NS").await.data.len() == 3).await;
        }
        println!("created 1,000 zones in {created:?}; {name} served them after {:?}", start.elapsed());
    }
}
