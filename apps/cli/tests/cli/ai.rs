//! `svc ai`.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sandbox::PaymentsServer;
use serde_json::json;

use crate::billing::{delivered, finished, with_provider};
use crate::reverse_proxy;
use crate::support::{Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn credit_is_bought_and_topped_up() {
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ai-models.example.json");
    let (_platform, payments, ada) = with_provider(&[("SVC_AI_MODELS", catalog.to_owned())]).await;
    let ai = |arguments: &[&str]| ada.svc(&[&["ai"], arguments, &["--org", "ada"]].concat());

    let models = ai(&["models"]).succeeds().out;
    assert!(models.starts_with("MODEL       LANE      INPUT PER M  OUTPUT PER M  CONTEXT\n"), "{models}");
    assert!(models.contains("lab/large   frontier  $3.00        $15.00        200000\n"), "{models}");
    assert!(!models.contains("open/small-8b-instruct"), "{models}");
    let credit = ai(&["credit"]).succeeds().out;
    assert_eq!(credit, "credit  $0.00\nsold    $5.00, $10.00, $25.00, $50.00, $100.00\ntop-up  off\n");
    assert_eq!(
        ai(&["topup"]).succeeds().out,
        "top-up          off\ntoday           0 of 3\n\
         payment method  none: `svc billing portal` saves one after a first purchase\n"
    );
    ai(&["topup", "on", "--amount", "25", "--below", "5"]).fails(1).stderr_contains("svc ai credit buy");
    ai(&["topup", "on", "--amount", "abc", "--below", "5"]).fails(2).stderr_contains("not an amount in dollars");
    let sold = "the amount must be one of $5.00, $10.00, $25.00, $50.00, $100.00\n";
    ai(&["credit", "buy", "7"]).fails(2).stderr_contains(sold);
    ai(&["topup", "on", "--amount", "26", "--below", "5"]).fails(2).stderr_contains(sold);
    for below in ["0", "25"] {
        ai(&["topup", "on", "--amount", "25", "--below", below]).fails(2).stderr_contains("less than --amount");
    }
    assert_eq!(ai(&["ledger"]).succeeds().out.lines().count(), 1);

    let buy = ada.command(&["ai", "credit", "buy", "$10", "--org", "ada"]).spawn().unwrap();
    assert!(payments.pay(&ada.opened().await).ends_with("/docs"));
    let bought = finished(buy).succeeds();
    bought.stderr_contains("charges no money").stderr_contains("ada bought $10.00 of credit for $10.00");
    assert!(bought.out.starts_with("credit  $10.00\n"), "{bought:?}");
    delivered(&payments).await;
    let ledger = ai(&["ledger"]).succeeds().out;
    let row: Vec<&str> = ledger.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], &row[2..]), ("1", &["topup", "$10.00", "$10.00", "–", "–", "–", "–"][..]), "{ledger}");

    // The payment saved no card.
    ai(&["topup", "on", "--amount", "25", "--below", "5.50"]).fails(1).stderr_contains("svc billing portal");
    let org = ada.json(&["orgs", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    payments.set_card(&org, false);
    ai(&["topup", "on", "--amount", "25", "--below", "5.50"])
        .succeeds()
        .stderr_contains("turned the automatic top-up on");
    let shown = ai(&["topup"]).succeeds().out;
    assert!(shown.starts_with("top-up          $25.00 when the credit falls below $5.50\n"), "{shown}");
    assert_eq!(ada.json(&["ai", "credit", "--org", "ada"])["autoTopup"]["thresholdMicroCents"], 550_000_000);
    ai(&["topup", "off"]).succeeds().stderr_contains("turned the automatic top-up off");

    payments.set_tax(19);
    let buy = ada.command(&["ai", "credit", "buy", "10", "--org", "ada"]).spawn().unwrap();
    let _ = payments.pay(&ada.opened().await);
    let bought = finished(buy).succeeds();
    bought.stderr_contains("ada bought $8.41 of credit for $10.00");
    assert!(bought.out.starts_with("credit  $18.41\n"), "{bought:?}");
    let printed = ai(&["credit", "buy", "5", "--no-browser", "--no-wait"]).succeeds().out;
    assert!(printed.contains("/payments/checkouts/"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_without_a_credit_product_names_its_operator() {
    let payments = PaymentsServer::start(None).await;
    let settings = payments.settings().into_iter().filter(|(name, _)| *name != "SVC_PAYMENTS_CREDIT_PRODUCT");
    let platform = Platform::with(&settings.collect::<Vec<_>>()).await;
    let ada = platform.ada();
    for (command, code) in [
        (&["credit", "buy", "5"][..], "code billing_off"),
        (&["topup", "on", "--amount", "25", "--below", "5"][..], "code no_payment_method"),
    ] {
        let refused = ada.svc(&[&["ai"], command, &["--org", "ada"]].concat()).fails(1);
        refused.stderr_contains("AI credit is not sold on this installation").stderr_contains(code);
        refused.stderr_contains("next: ask the operator of the platform\n");
    }
}

/// Waits until a command has sent two more requests, or has ended. It has then read the response of the first one.
async fn wait_for_poll(command: &mut Child, requests: &AtomicUsize) {
    let expected = requests.load(Ordering::SeqCst) + 2;
    while requests.load(Ordering::SeqCst) < expected && command.try_wait().unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns another machine of Ada, whose reads of the ledger are counted, and fail on request.
async fn with_counted_reads(platform: &Platform) -> (Machine, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let (reads, is_failing) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, fails) = (Arc::clone(&reads), Arc::clone(&is_failing));
    let proxy = reverse_proxy::start(platform, move |request| {
        let is_read = request == "GET /v1/orgs/ada/ai/ledger";
        counter.fetch_add(usize::from(is_read), Ordering::SeqCst);
        (is_read && fails.load(Ordering::SeqCst)).then_some(500)
    });
    let machine = Machine::new(&proxy.await);
    machine.svc(&["login", "--dev", "ada"]).succeeds();
    (machine, reads, is_failing)
}

/// Pays another purchase.
fn pay(payments: &PaymentsServer, ada: &Machine, dollars: &str) {
    let check_out = ["ai", "credit", "buy", dollars, "--no-browser", "--no-wait", "--org", "ada"];
    let _ = payments.pay(ada.svc(&check_out).succeeds().out.trim());
}

/// Another admin, or the automatic top-up, buys credit at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn payment_of_another_amount_does_not_end_a_purchase() {
    let (platform, payments, ada) = with_provider(&[]).await;
    let (other, reads, is_failing) = with_counted_reads(&platform).await;
    let mut buy = other.command(&["ai", "credit", "buy", "10", "--no-browser", "--org", "ada"]).spawn().unwrap();
    wait_for_poll(&mut buy, &reads).await;
    let pay = |dollars: &str| pay(&payments, &ada, dollars);
    pay("5");
    pay("25");
    delivered(&payments).await;
    wait_for_poll(&mut buy, &reads).await;
    // The next successful read contains two payments of this amount.
    is_failing.store(true, Ordering::SeqCst);
    wait_for_poll(&mut buy, &reads).await;
    pay("10");
    pay("10");
    delivered(&payments).await;
    is_failing.store(false, Ordering::SeqCst);
    let bought = finished(buy).succeeds();
    bought.stderr_contains("ada bought credit for $10.00");
    assert!(bought.out.starts_with("credit  $50.00\n"), "{bought:?}");
}

/// The ledger has a row for each call.
#[tokio::test(flavor = "multi_thread")]
async fn payment_followed_by_many_calls_ends_a_purchase() {
    let (platform, payments, ada) = with_provider(&[]).await;
    pay(&payments, &ada, "5");
    delivered(&payments).await;
    let (other, reads, is_failing) = with_counted_reads(&platform).await;
    let mut buy = other.command(&["ai", "credit", "buy", "10", "--no-browser", "--org", "ada"]).spawn().unwrap();
    wait_for_poll(&mut buy, &reads).await;
    let add_rows = async || {
        let rows = "INSERT INTO billing.ledger \
                 (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at) \
                 SELECT org_id, last_ledger_id + n, 'adjust', 0, balance_micro_cents, last_ledger_at \
                 FROM billing.accounts, generate_series(1, 450) AS n; \
             UPDATE billing.accounts SET last_ledger_id = last_ledger_id + 450";
        platform.database.run(rows).await;
    };
    add_rows().await;
    wait_for_poll(&mut buy, &reads).await;
    is_failing.store(true, Ordering::SeqCst);
    wait_for_poll(&mut buy, &reads).await;
    pay(&payments, &ada, "10");
    delivered(&payments).await;
    add_rows().await;
    is_failing.store(false, Ordering::SeqCst);
    let bought = finished(buy).succeeds();
    bought.stderr_contains("ada bought $10.00 of credit for $10.00");
    assert!(bought.out.starts_with("credit  $15.00\n"), "{bought:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn access_is_enabled_by_command_or_by_the_manifest() {
    let (_platform, _payments, ada) = with_provider(&[]).await;
    ada.svc(&["projects", "create", "site", "--org", "ada"]).succeeds();
    let ai = |command: &str| ada.svc(&["ai", command, "--org", "ada", "--project", "site"]);
    let status = ai("status").succeeds().out;
    assert!(status.starts_with("enabled  no\ncredit   $0.00\nspent    $0.00 of $10.00 in 24 hours\n"), "{status}");
    ai("enable").succeeds().stderr_contains("env.ai").stderr_contains("no credit");
    assert!(ai("status").succeeds().out.starts_with("enabled  yes\n"));
    ai("disable").succeeds();
    ada.write("svc.json", r#"{ "ai": true }"#);
    ada.write("assets/index.html", "hello");
    ada.svc(&["deploy", "--no-wait", "--org", "ada", "--project", "site"]).succeeds().stderr_contains("ai");
    let status = ada.json(&["ai", "status", "--org", "ada", "--project", "site"]);
    assert_eq!((&status["granted"], &status["usage24h"]["calls"]), (&json!(true), &json!(0)));
}
