use dns::signer::Signer;
use dns::{DnssecState, DnssecSwitch};
use serde_json::json;

use super::kit::{Kit, ZONE, actor};

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_is_away_is_told_of_in_words_and_asked_again() {
    let kit = Kit::start().await;
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let signer = Signer::new(nobody, kit.store.world().clone());
    assert_eq!(kit.dns.signers_look(&signer).await.unwrap(), 0, "nothing is signed");
    kit.dns.dnssec_switch(&actor(), kit.org, ZONE, DnssecSwitch { enabled: true }).await.unwrap();
    kit.clock.advance(5);
    let before = kit.served().await.serial;
    assert_eq!(kit.dns.signers_look(&signer).await.unwrap(), 1);
    assert_eq!(kit.dns.signers_look(&signer).await.unwrap(), 0, "not due yet");
    let dnssec = kit.dns.dnssec(kit.org, ZONE).await.unwrap();
    let seen = dnssec.signer.unwrap();
    assert_eq!((dnssec.state, seen.serial, seen.keys.len()), (DnssecState::Signing, None, 0));
    assert!(seen.error.is_some_and(|error| !error.is_empty()));
    kit.clock.advance(15);
    assert_eq!(kit.dns.signers_look(&signer).await.unwrap(), 1);
    assert_eq!(kit.served().await.serial, before, "nothing follows from what was not seen");
    let noted = kit.database.rows("SELECT count(*) FROM store.audit WHERE event = 'dns.ds.set'").await;
    assert_eq!(noted, [json!({ "count": 0 })]);
}
