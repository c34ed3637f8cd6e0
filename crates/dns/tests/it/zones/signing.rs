use dns::signer::Signer;
use dns::{DnssecState, DnssecSwitch};
use serde_json::json;

use super::kit::{Kit, ZONE, actor};

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_signer_is_reported_and_checked_again() {
    let kit = Kit::start().await;
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let signer = Signer::new(unused, kit.store.clock_rng().clone());
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 0, "no zone is signed");
    kit.dns.dnssec_switch(&actor(), kit.org, ZONE, DnssecSwitch { enabled: true }).await.unwrap();
    kit.clock.advance(5);
    let before = kit.served().await.serial;
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 1);
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 0, "not due yet");
    let dnssec = kit.dns.dnssec(kit.org, ZONE).await.unwrap();
    let view = dnssec.signer.unwrap();
    assert_eq!((dnssec.state, view.serial, view.keys.len()), (DnssecState::Signing, None, 0));
    assert!(view.error.is_some_and(|error| !error.is_empty()));
    kit.clock.advance(15);
    assert_eq!(kit.dns.check_signers(&signer).await.unwrap(), 1);
    assert_eq!(kit.served().await.serial, before, "a failed check does not raise the serial");
    let events = kit.database.rows("SELECT count(*) FROM store.audit WHERE event = 'dns.ds.set'").await;
    assert_eq!(events, [json!({ "count": 0 })]);
}
