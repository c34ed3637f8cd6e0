//! `svc domains`.

use sandbox::{PaymentsServer, RegistrarFault, RegistrarServer};

use crate::billing::with_provider;
use crate::reverse_proxy;
use crate::support::{CommandResult, Machine, Platform};

const CONTACT: &str = r#"{"firstName":"Ada","lastName":"Lovelace","email":"ada@code.example","phone":"+442079460000",
    "street":"12 St James's Square","city":"London","postalCode":"SW1Y 4JH","country":"GB"}"#;

struct Kit {
    registrar: RegistrarServer,
    payments: PaymentsServer,
    ada: Machine,
    org: String,
    platform: Platform,
}

impl Kit {
    /// A platform with a registrar, and the machine of Ada, whose organization has a saved card.
    async fn start() -> Self {
        let registrar = RegistrarServer::start().await;
        let nameservers = [("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned())];
        let (platform, payments, ada) = with_provider(&[&registrar.settings()[..], &nameservers].concat()).await;
        let org = ada.json(&["orgs", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
        payments.set_card(&org, false);
        ada.write("contact.json", CONTACT);
        Self { registrar, payments, ada, org, platform }
    }

    fn run(&self, arguments: &[&str]) -> CommandResult {
        self.ada.svc(&[&["domains"], arguments, &["--org", "ada"]].concat())
    }

    fn buy(&self, name: &str) -> CommandResult {
        self.run(&["buy", name, "--contact", "contact.json", "--max-price", "20", "--yes"])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_is_checked_bought_and_managed() {
    let kit = Kit::start().await;
    let checked = kit.run(&["check", "shop.com", "taken-1.com", "premium-1.com"]).succeeds().out;
    let rows: Vec<Vec<&str>> = checked.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["shop.com", "yes", "$12.99", "$15.99", "–"]);
    assert_eq!(rows[2], ["taken-1.com", "no", "–", "–", "registered"]);
    assert_eq!(rows[3], ["premium-1.com", "yes", "$2500.00", "$2500.00", "premium"]);

    let bought = kit.buy("shop.com").succeeds();
    bought.stderr_contains("shop.com costs $12.99 for a year, and then $15.99 a year");
    bought.stderr_contains("charges no money").stderr_contains("ada has shop.com");
    bought.stderr_contains("svc hostnames add www.shop.com");
    assert!(bought.out.contains("state         active\n"), "{bought:?}");
    kit.buy("shop.com").succeeds().stderr_contains("ada has shop.com already");
    let registered = kit.run(&["import", "shop.com"]).succeeds();
    assert!(registered.err.ends_with("ada has shop.com already\n"), "{registered:?}");
    assert_eq!((kit.registrar.orders().len(), kit.payments.net_cents(&kit.org)), (1, 1_299));

    let listed = kit.run(&["list"]).succeeds().out;
    assert!(listed.lines().nth(1).unwrap().starts_with("shop.com  active"), "{listed}");
    assert!(kit.run(&["unlock", "shop.com"]).succeeds().out.contains("locked        no\n"));
    assert!(kit.run(&["lock", "shop.com"]).succeeds().out.contains("locked        yes\n"));
    let changed = kit.run(&["auto-renew", "shop.com", "off"]).succeeds();
    assert!(changed.out.contains("auto-renew    no\n") && !changed.err.contains("has no effect"), "{changed:?}");
    let unconfirmed = kit.run(&["renew", "shop.com", "--years", "2"]).fails(2);
    unconfirmed.stderr_contains("A renewal of shop.com for 2 years costs $31.98");
    unconfirmed.stderr_contains("nothing was renewed: confirm with --yes");
    kit.run(&["renew", "shop.com", "--years", "11", "--yes"]).fails(2);
    let refused = kit.run(&["renew", "shop.com", "--years", "10", "--yes"]).fails(1);
    refused.stderr_contains("more than ten years from now").stderr_contains("next: run the command again");
    let renewed = kit.run(&["renew", "shop.com", "--years", "2", "--yes"]).succeeds();
    renewed.stderr_contains("shop.com was last renewed at ").stderr_contains(", for 2 years. The price is $31.98.");
    renewed.stderr_contains("If its payment is declined, `svc notifications` and `svc domains show shop.com` show it.");
    let repeated = kit.run(&["renew", "shop.com", "--years", "2", "--yes"]).succeeds();
    assert_eq!((repeated.out, repeated.err), (renewed.out, renewed.err));
    let code = kit.run(&["auth-code", "shop.com"]).succeeds();
    code.stderr_contains("The registry refuses transfers of shop.com until");
    assert!(!code.out.trim().is_empty());
    let shown = kit.run(&["show", "shop.com"]).succeeds().out;
    for event in ["domain.purchase", "domain.lock", "domain.renew", "domain.auth_code", "domain.auto_renew"] {
        assert!(shown.contains(event), "{event}: {shown}");
    }
    assert_eq!(shown.matches("domain.renew").count(), 1, "{shown}");
    assert!(!shown.contains(code.out.trim()));
    kit.registrar.transfer_away("shop.com");
    assert!(kit.run(&["sync", "shop.com"]).succeeds().out.contains("state         transferred_out\n"));
    let changed = kit.run(&["auto-renew", "shop.com", "on"]).succeeds();
    changed.stderr_contains("the setting has no effect");
    assert!(changed.out.contains("auto-renew    –\n"), "{changed:?}");
    let refused = kit.run(&["renew", "shop.com", "--yes"]).fails(1);
    refused.stderr_contains("code domain_not_managed").stderr_contains("next: manage this domain at the registrar");

    let imported = kit.run(&["import", "bücher.example"]).succeeds();
    imported.stderr_contains("Set these nameservers at the registrar");
    for text in ["xn--bcher-kva.example", "external: registered elsewhere", "ns1.svc.example, ns2.svc.example"] {
        assert!(imported.out.contains(text), "{text}: {imported:?}");
    }
    assert!(imported.out.contains("auto-renew    –\n"), "{imported:?}");
    kit.run(&["auto-renew", "bücher.example", "on"]).succeeds().stderr_contains("the setting has no effect");
    assert_eq!(kit.ada.json(&["domains", "list", "--org", "ada"])["items"].as_array().unwrap().len(), 2);
}

/// The registrar renews a domain whose automatic renewal is off.
#[tokio::test(flavor = "multi_thread")]
async fn unbilled_renewals_are_shown_before_they_are_charged() {
    let kit = Kit::start().await;
    kit.buy("shop.com").succeeds();
    kit.run(&["auto-renew", "shop.com", "off"]).succeeds();
    kit.registrar.set_expiry("shop.com", "2099-01-01T00:00:00Z".parse().unwrap());
    kit.run(&["sync", "shop.com"]).succeeds();
    let shown = kit.ada.json(&["domains", "show", "shop.com", "--org", "ada"]);
    let cents = shown["unbilledCents"].as_i64().unwrap();
    assert!(cents > 0 && shown["unpaidCents"] == cents, "{shown}");
    let price = format!("${}.{:02}", cents / 100, cents % 100);
    let shown = kit.run(&["show", "shop.com"]).succeeds();
    shown.stderr_contains(&format!("Unpaid renewals are charged before the next renewal: {price}"));
    let renewal = kit.run(&["renew", "shop.com"]).fails(2);
    renewal.stderr_contains(&format!("Unpaid renewals are charged first: {price}"));
    let unconfirmed = kit.run(&["auto-renew", "shop.com", "on"]).fails(2);
    unconfirmed.stderr_contains(&format!("shop.com was renewed while automatic renewal was off, for {price}"));
    unconfirmed.stderr_contains("nothing was changed: confirm with --yes");
    assert_eq!(kit.payments.net_cents(&kit.org), 1_299);
    kit.run(&["auto-renew", "shop.com", "on", "--yes"]).succeeds();
    let shown = kit.ada.json(&["domains", "show", "shop.com", "--org", "ada"]);
    assert!(shown["unbilledCents"] == 0 && shown["autoRenew"] == true, "{shown}");
    kit.run(&["auto-renew", "shop.com", "on"]).succeeds();
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_renewal_is_turned_on_without_the_details_if_it_is_confirmed() {
    let kit = Kit::start().await;
    kit.buy("shop.com").succeeds();
    kit.run(&["auto-renew", "shop.com", "off"]).succeeds();
    let read = "GET /v1/orgs/ada/domains/shop.com";
    let proxy = reverse_proxy::start(&kit.platform, move |it| (it == read).then_some(500)).await;
    let token = kit.ada.svc(&["tokens", "create", "ci", "--scope", "dns:write"]).succeeds().out;
    for (arguments, enabled) in [(&[][..], false), (&["--yes"][..], true)] {
        let base = ["domains", "auto-renew", "shop.com", "on", "--org", "ada", "--api", proxy.as_str()];
        let mut command = kit.ada.command(&[&base[..], arguments].concat());
        let output = command.env("SVC_CLI_TOKEN", token.trim()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.success(), enabled, "{output:?}");
        let shown = kit.ada.json(&["domains", "show", "shop.com", "--org", "ada"]);
        assert_eq!(shown["autoRenew"], enabled, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_a_zone_in_use_is_warned_of() {
    let kit = Kit::start().await;
    kit.buy("shop.com").succeeds();
    kit.ada.svc(&["projects", "create", "site", "--org", "ada"]).succeeds();
    kit.ada.svc(&["hostnames", "add", "www.shop.com", "--org", "ada", "--project", "site"]).succeeds();
    kit.ada.svc(&["hostnames", "verify", "www.shop.com", "--org", "ada", "--project", "site"]).succeeds();
    let warned = kit.ada.svc(&["zones", "delete", "shop.com", "--org", "ada"]).fails(2);
    warned.stderr_contains("warning: the zone has the records of www.shop.com, a hostname of a project");
    warned.stderr_contains("warning: shop.com is registered here").stderr_contains("nothing was deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_bought_without_consent_and_a_contact() {
    let kit = Kit::start().await;
    kit.run(&["buy", "shop.com", "--contact", "contact.json", "--yes"]).fails(2).stderr_contains("--max-price");
    let unconfirmed = kit.run(&["buy", "shop.com", "--contact", "contact.json"]).fails(2);
    unconfirmed.stderr_contains("costs $12.99").stderr_contains("nothing was bought: confirm with --yes");
    let expensive = kit.run(&["buy", "shop.com", "--years", "2", "--max-price", "28.97", "--yes"]).fails(2);
    expensive.stderr_contains("costs $28.98 for 2 years").stderr_contains("the price is above --max-price");
    let without_contact = kit.run(&["buy", "shop.com", "--max-price", "20", "--yes"]).fails(2);
    without_contact.stderr_contains("the contact lacks \"First name\"").stderr_contains("use --contact FILE");
    kit.run(&["buy", "taken-1.com", "--max-price", "20", "--yes"]).fails(1).stderr_contains("is not available");
    kit.ada.write("broken.json", r#"{"firstName":"Ada"}"#);
    let broken = kit.run(&["buy", "shop.com", "--contact", "broken.json", "--max-price", "20", "--yes"]).fails(2);
    broken.stderr_contains("broken.json: missing field");
    kit.run(&["buy", "shop.com", "--years", "11"]).fails(2);
    kit.payments.set_card(&kit.org, true);
    let declined = kit.buy("shop.com").fails(1);
    declined.stderr_contains("code payment_failed").stderr_contains("next: `svc billing portal`");
    declined.stderr_contains("`svc ai credit buy`");
    assert_eq!((kit.registrar.orders().len(), kit.payments.net_cents(&kit.org)), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_that_was_imported_or_transferred_away_is_bought() {
    let kit = Kit::start().await;
    kit.run(&["import", "shop.com"]).succeeds();
    let bought = kit.buy("shop.com").succeeds();
    bought.stderr_contains("shop.com costs $12.99");
    assert!(bought.out.contains("state         active\n"), "{bought:?}");
    kit.registrar.transfer_away("shop.com");
    assert!(kit.run(&["sync", "shop.com"]).succeeds().out.contains("state         transferred_out\n"));
    // It is registered elsewhere now.
    kit.buy("shop.com").fails(1).stderr_contains("shop.com is not available");
    assert_eq!((kit.registrar.orders().len(), kit.payments.net_cents(&kit.org)), (1, 1_299));
}

#[tokio::test(flavor = "multi_thread")]
async fn same_command_continues_an_interrupted_purchase() {
    let kit = Kit::start().await;
    let failed = kit.buy("fail-register-after-1.com").fails(7);
    failed.stderr_contains("code registrar_error").stderr_contains("next: run the same command again");
    // A background job may have completed the purchase.
    kit.buy("fail-register-after-1.com").succeeds().stderr_contains("ada has fail-register-after-1.com");
    assert_eq!((kit.registrar.orders().len(), kit.payments.net_cents(&kit.org)), (1, 1_299));
    kit.registrar.inject(Some(RegistrarFault::refusal(400)));
    kit.run(&["check", "shop.com"]).fails(7).stderr_contains("code registrar_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_registrar_domains_can_only_be_imported() {
    let platform = Platform::with(&[("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned())]).await;
    let ada = platform.ada();
    for command in ["check", "buy"] {
        let refused = ada.svc(&["domains", command, "shop.com", "--org", "ada"]).fails(1);
        refused.stderr_contains("code registrar_not_configured").stderr_contains("next: `svc domains import`");
    }
    ada.svc(&["domains", "import", "shop.com", "--org", "ada"]).succeeds();
    ada.svc(&["domains", "show", "other.com", "--org", "ada"]).fails(5);
    // The installation had a registrar before.
    let registered = "UPDATE domains.domains SET state = 'active', registered_at = now(), \
                      expires_at = now() + interval '1 year', locked = true, renewal_cents = 1599";
    platform.database.run(registered).await;
    for command in [&["renew", "--yes"][..], &["unlock"][..], &["auth-code"][..], &["sync"][..]] {
        let refused = ada.svc(&[&["domains"], command, &["shop.com", "--org", "ada"]].concat()).fails(1);
        refused.stderr_contains("code registrar_not_configured");
        refused.stderr_contains("next: ask the operator of the platform\n");
    }
}
