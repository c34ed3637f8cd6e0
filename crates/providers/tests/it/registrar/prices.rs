//! Names and prices of checks.

use providers::OutboundError;
use providers::registrar::{CheckedName, Offer, RegistrarError};
use sandbox::{RegistrarFault, RegistrarOperation, RegistrarServer};

use super::client;

/// The prices of a name with no special word.
const COM: Option<Offer> = offer(1_299, 1_599);

const fn offer(price_cents: i64, renewal_cents: i64) -> Option<Offer> {
    Some(Offer { price_cents, renewal_cents, premium: false })
}

/// Names with their offers. The sandbox sorts its results, and leaves out `missing-…`.
const NAMES: [(&str, Option<Offer>); 40] = [
    ("zebra.com", COM),
    ("aardvark.com", COM),
    ("taken-1.com", None),
    ("taken-2.net", None),
    ("missing-1.com", None),
    ("missing-2.org", None),
    ("aftermarket-1.com", None),
    ("aftermarket-2.io", None),
    ("premium-1.com", Some(Offer { price_cents: 250_000, renewal_cents: 250_000, premium: true })),
    ("premium-2.dev", Some(Offer { price_cents: 250_000, renewal_cents: 250_000, premium: true })),
    ("a.com", COM),
    ("0.com", COM),
    ("x-1.com", COM),
    ("xn--bcher-kva.com", COM),
    ("xn--fsq.com", COM),
    ("xn--p1b6ci4b4b3a.com", COM),
    ("label-with-63-octets-000000000000000000000000000000000000000000.com", COM),
    ("shop.net", offer(1_450, 1_795)),
    ("shop.org", offer(899, 1_499)),
    ("shop.dev", offer(1_500, 1_500)),
    ("shop.io", offer(3_498, 5_998)),
    ("shop.app", offer(1_999, 2_499)),
    ("shop.de", offer(1_999, 2_499)),
    ("shop.co.uk", offer(1_999, 2_499)),
    ("shop.com.au", offer(1_999, 2_499)),
    ("shop.xn--p1ai", offer(1_999, 2_499)),
    ("shop.museum", offer(1_999, 2_499)),
    ("shop.info", offer(1_999, 2_499)),
    ("shop.blog", offer(1_999, 2_499)),
    ("shop.example", offer(1_999, 2_499)),
    ("takenot.com", COM),
    ("premiumnot.com", COM),
    ("missingnot.com", COM),
    ("not-taken-1.com", COM),
    ("not-missing-1.com", COM),
    ("fail-register-before-1.com", COM),
    ("fail-register-after-1.com", COM),
    ("status-register-422-1.com", COM),
    ("com.com", COM),
    ("net.com", COM),
];

/// Checks names. Returns their offers in their order.
async fn offers(server: &RegistrarServer, names: &[&str]) -> Result<Vec<Option<Offer>>, RegistrarError> {
    let checked = client(server).check(names).await?;
    assert!(checked.iter().all(|checked| names.contains(&checked.name.as_str())), "{checked:?}");
    let find = |name: &&str| checked.iter().find(|checked| checked.name == *name);
    Ok(names.iter().map(|name| find(name).and_then(|checked| checked.offer)).collect())
}

#[tokio::test]
async fn each_name_gets_its_own_offer() {
    let server = RegistrarServer::start().await;
    let names = NAMES.map(|(name, _)| name);
    assert_eq!(offers(&server, &names).await.unwrap(), NAMES.map(|(_, offer)| offer));
    let taken = CheckedName { name: "taken-1.com".to_owned(), offer: None };
    assert_eq!(client(&server).check(&["missing-1.com", "taken-1.com"]).await, Ok(vec![taken]));
    assert_eq!(client(&server).check(&["missing-1.com", "missing-2.org"]).await, Ok(Vec::new()));
    assert_eq!(server.calls().last().unwrap(), "Check missing-1.com: 422");
}

/// Prices as the registrar may write them, and the cents that they mean; `None` for a wrong shape.
const PRICES: [(&str, Option<i64>); 64] = [
    ("12.99", Some(1_299)),
    ("\"12.99\"", Some(1_299)),
    ("12", Some(1_200)),
    ("\"12\"", Some(1_200)),
    ("12.9", Some(1_290)),
    ("12.0", Some(1_200)),
    ("12.990", Some(1_299)),
    ("0.01", Some(1)),
    ("0.010000000000000000000000001", Some(1)),
    // Half up.
    ("12.985", Some(1_299)),
    ("12.9849999999999999999999999", Some(1_298)),
    ("12.984", Some(1_298)),
    ("12.995", Some(1_300)),
    ("12.994999", Some(1_299)),
    ("99.995", Some(10_000)),
    ("99.9949", Some(9_999)),
    ("0.005", Some(1)),
    ("1.005", Some(101)),
    ("2.675", Some(268)),
    ("1.255", Some(126)),
    ("10.075", Some(1_008)),
    // The noise of floating-point arithmetic.
    ("34.980000000000004", Some(3_498)),
    ("12.989999999999998", Some(1_299)),
    ("0.30000000000000004", Some(30)),
    ("8.989999999999998", Some(899)),
    ("\"34.980000000000004\"", Some(3_498)),
    // Exponents.
    ("1e1", Some(1_000)),
    ("1E1", Some(1_000)),
    ("1e+1", Some(1_000)),
    ("1.299e1", Some(1_299)),
    ("1299e-2", Some(1_299)),
    ("\"1299e-2\"", Some(1_299)),
    ("12995e-3", Some(1_300)),
    ("12994e-3", Some(1_299)),
    ("0.001299e4", Some(1_299)),
    ("5e-3", Some(1)),
    ("1e0000000000000000000001", Some(1_000)),
    // The maximum, and more.
    ("1000000", Some(100_000_000)),
    ("1e6", Some(100_000_000)),
    ("1000000.004", Some(100_000_000)),
    ("1000000.005", None),
    ("1000000.01", None),
    ("10000000", None),
    ("1e7", None),
    ("1e400", None),
    ("1e99999999999999999999999999", None),
    ("99999999999999999999999999999999999999", None),
    // These texts are not prices.
    ("0", None),
    ("0.00", None),
    ("0.004", None),
    ("4e-3", None),
    ("1e-400", None),
    ("1e-99999999999999999999999999", None),
    ("-12.99", None),
    ("\"-12.99\"", None),
    ("-0", None),
    ("NaN", None),
    ("\"NaN\"", None),
    ("\"Infinity\"", None),
    ("\"\"", None),
    ("\"$12.99\"", None),
    ("\"12,99\"", None),
    ("null", None),
    ("true", None),
];

/// Checks a name whose price and renewal price are these texts.
async fn check(server: &RegistrarServer, members: &str) -> Result<Vec<Option<Offer>>, RegistrarError> {
    let result = format!(r#"{{"results":[{{"domainName":"SHOP.com","purchasable":true{members}}}]}}"#);
    server.inject_into(RegistrarOperation::Check, RegistrarFault::Response(200, "application/json", result));
    offers(server, &["shop.com"]).await
}

#[tokio::test]
async fn prices_are_read_as_decimals() {
    let server = RegistrarServer::start().await;
    for (text, cents) in PRICES {
        let expected = match cents {
            Some(cents) => Ok(vec![offer(cents, 1_599)]),
            None => Err(RegistrarError::Failed(OutboundError::NotJson)),
        };
        let members = format!(r#","purchasePrice":{text},"renewalPrice":15.99"#);
        assert_eq!(check(&server, &members).await, expected, "{text}");
    }
    for text in ["[12.99]", "{}", "\" 12.99\"", "\"12.\"", "\".99\"", "\"1e\"", "\"+1\"", "\"0x10\"", "\"1_000\"", "01"]
    {
        let members = format!(r#","purchasePrice":{text},"renewalPrice":15.99"#);
        assert!(check(&server, &members).await.is_err(), "{text}");
    }
    let absent =
        [r#","renewalPrice":15.99"#, r#","purchasePrice":12.99"#, r#","purchasePrice":12.99,"renewalPrice":-1"#, ""];
    for members in absent {
        assert_eq!(check(&server, members).await, Err(RegistrarError::Failed(OutboundError::NotJson)), "{members}");
    }
    // The prices of a name that cannot be registered do not matter.
    let taken =
        r#"{"results":[{"domainName":"shop.com","reason":"taken"},{"domainName":"other.com","purchasable":true}]}"#;
    server.inject_into(RegistrarOperation::Check, RegistrarFault::Response(200, "application/json", taken.to_owned()));
    assert_eq!(offers(&server, &["shop.com"]).await, Ok(vec![None]));
}
