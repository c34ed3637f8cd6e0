//! `svc billing`.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sandbox::{PaymentsFault, PaymentsServer};
use serde_json::{Value, json};
use testkit::{reserved_port, write_program};

use crate::reverse_proxy;
use crate::support::{CommandResult, Machine, Platform};

/// Starts a platform with a payments provider and more settings, and the machine of Ada, who has the organization
/// `ada`.
pub async fn with_provider(more: &[(&'static str, String)]) -> (Platform, PaymentsServer, Machine) {
    let port = reserved_port();
    let payments = PaymentsServer::start(Some(format!("http://127.0.0.1:{port}/v1/hooks/payments"))).await;
    let platform = Platform::at(port, &[&payments.settings(), more].concat()).await;
    let mut ada = platform.ada();
    ada.browser();
    (platform, payments, ada)
}

/// Waits until the service has accepted all webhooks.
pub async fn delivered(payments: &PaymentsServer) {
    for _ in 0..3000 {
        if payments.deliveries().iter().all(|delivery| delivery.status == Some(200)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?}", payments.deliveries());
}

fn billing(machine: &Machine, arguments: &[&str]) -> CommandResult {
    machine.svc(&[&["billing"], arguments, &["--org", "ada"]].concat())
}

/// Waits for a command that was started before, and returns its result.
pub fn finished(command: Child) -> CommandResult {
    let output = command.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandResult { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_provider_the_plan_is_shown_but_cannot_be_changed() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    ada.svc(&["billing", "status"]).fails(2).stderr_contains("--org");
    let shown = ada.svc(&["billing", "status", "--org", "ada"]).succeeds().out;
    assert!(shown.starts_with("plan        free\nstatus      –\nperiod end  –\nbilling     off\n\nLIMIT  "), "{shown}");
    let row = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    for (limit, plans) in [
        ("projects", ["3", "100"]),
        ("bundle, packed", ["50.00 MiB", "200.00 MiB"]),
        ("database per project", ["1.00 GiB", "50.00 GiB"]),
        ("AI spend per project and day", ["$10.00", "$1000.00"]),
    ] {
        assert_eq!(row(limit), plans, "{limit}");
    }
    let status = ada.json(&["billing", "status", "--org", "ada"]);
    assert_eq!((&status["plan"], &status["enabled"]), (&json!("free"), &json!(false)));

    for command in [&["upgrade", "--no-browser"][..], &["upgrade", "--no-wait"], &["portal"], &["cancel", "--undo"]] {
        let ran = ada.svc(&[&["billing"], command, &["--org", "ada"]].concat()).fails(1);
        ran.stderr_contains("billing is not configured").stderr_contains("code billing_off");
        ran.stderr_contains("next: ask the operator of the platform");
        assert_eq!(ran.out, "", "{command:?}");
    }
    let refused = ada.svc(&["billing", "portal", "--org", "ada", "--json"]).fails(1);
    assert_eq!(refused.json()["code"], "billing_off");
    ada.svc(&["billing", "status", "--org", "nowhere"]).fails(5).stderr_contains("svc orgs list");
    // Without a terminal, nothing is cancelled without --yes.
    ada.svc(&["billing", "cancel", "--org", "ada"]).fails(2).stderr_contains("--yes");
    let none: Vec<Value> = Vec::new();
    assert_eq!(platform.database.rows("SELECT event FROM store.audit WHERE event LIKE 'billing.%'").await, none);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_is_bought_cancelled_continued_and_ended() {
    let (platform, payments, ada) = with_provider(&[]).await;
    billing(&ada, &["portal"]).fails(5).stderr_contains("never paid").stderr_contains("next: `svc billing upgrade`");
    billing(&ada, &["cancel", "--yes"]).fails(1).stderr_contains("code not_pro").stderr_contains("svc billing upgrade");
    ada.svc(&["billing", "portal", "--org", "nowhere"]).fails(5).stderr_contains("svc orgs list");

    let mut upgrade = ada.command(&["billing", "upgrade", "--org", "ada"]).spawn().unwrap();
    let checkout = ada.opened().await;
    let status = ada.json(&["billing", "status", "--org", "ada"]);
    assert_eq!((&status["plan"], &status["enabled"], &status["sandbox"]), (&json!("free"), &json!(true), &json!(true)));
    assert!(upgrade.try_wait().unwrap().is_none(), "svc did not wait for the payment");
    assert_eq!(payments.pay(&checkout), format!("{}/docs", platform.api));
    let upgraded = finished(upgrade).succeeds();
    let period_end = ada.json(&["billing", "status", "--org", "ada"])["periodEnd"].as_str().unwrap().to_owned();
    upgraded.stderr_contains("charges no money").stderr_contains("ada has the pro plan");
    let status = format!(
        "plan        pro\nstatus      active\nperiod end  {period_end}, then it renews\n\
         billing     on, in a test environment without real charges\n"
    );
    assert!(upgraded.out.starts_with(&status), "{upgraded:?}");
    for options in [&["upgrade"][..], &["upgrade", "--no-wait"]] {
        billing(&ada, options).fails(1).stderr_contains("code already_pro").stderr_contains("svc billing portal");
    }

    assert_eq!(billing(&ada, &["portal"]).succeeds().out, "");
    let visits = [
        ada.opened().await,
        billing(&ada, &["portal", "--no-browser"]).succeeds().out.trim().to_owned(),
        ada.json(&["billing", "portal", "--no-browser", "--org", "ada"])["url"].as_str().unwrap().to_owned(),
    ];
    for portal in visits {
        let page = reqwest::Client::builder().no_proxy().build().unwrap().get(&portal).send().await.unwrap();
        assert!(portal.contains("/payments/portal/") && page.status().is_success(), "{portal}: {page:?}");
    }

    billing(&ada, &["cancel"]).fails(2).stderr_contains("nothing was changed: confirm with --yes");
    assert_eq!(ada.json(&["billing", "status", "--org", "ada"])["cancelAtPeriodEnd"], false);
    let cancelled = billing(&ada, &["cancel", "--yes"]).succeeds();
    cancelled.stderr_contains(&format!("ends at {period_end}"));
    assert!(cancelled.out.contains(&format!("period end  {period_end}, then the plan ends\n")), "{cancelled:?}");
    let continued = ada.svc(&["billing", "cancel", "--undo", "--org", "ada", "--json"]).succeeds();
    continued.stderr_contains("the pro plan of ada continues");
    assert_eq!(continued.json()["cancelAtPeriodEnd"], false);

    let org = ada.json(&["orgs", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    payments.set_subscription_status(&org, "past_due");
    delivered(&payments).await;
    let past_due = billing(&ada, &["status"]).succeeds();
    past_due.stderr_contains("the last payment failed").stderr_contains("svc billing portal");
    let status = format!("plan        pro\nstatus      past_due\nperiod end  {period_end}\n");
    assert!(past_due.out.starts_with(&status), "{past_due:?}");
    payments.set_subscription_status(&org, "canceled");
    delivered(&payments).await;
    let ended = billing(&ada, &["status"]).succeeds().out;
    let status = format!("plan        free\nstatus      canceled\nperiod end  {period_end}\n");
    assert!(ended.starts_with(&status), "{ended}");
    billing(&ada, &["cancel", "--undo"]).fails(1).stderr_contains("code not_pro");
    let audited =
        "SELECT event FROM store.audit WHERE event IN ('billing.plan', 'billing.cancel', 'billing.resume') ORDER BY id";
    let events = platform.database.rows(audited).await;
    let expected = ["plan", "cancel", "resume", "plan"].map(|event| json!({ "event": format!("billing.{event}") }));
    assert_eq!(events, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_prints_the_checkout_and_survives_transient_errors_of_the_api() {
    const ERRORS: [u16; 3] = [502, 429, 500];
    let (platform, payments, ada) = with_provider(&[]).await;
    let printed = billing(&ada, &["upgrade", "--no-browser", "--no-wait"]).succeeds().out;
    assert!(printed.contains("/payments/checkouts/"), "{printed}");
    let opened = ada.json(&["billing", "upgrade", "--no-wait", "--org", "ada"]);
    assert_eq!(opened["url"], ada.opened().await);

    let polls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&polls);
    let proxy = reverse_proxy::start(&platform, move |request| match request {
        // The first request is from before the checkout, so it succeeds.
        "GET /v1/orgs/ada/billing" => {
            counter.fetch_add(1, Ordering::SeqCst).checked_sub(1).and_then(|poll| ERRORS.get(poll).copied())
        }
        _ => None,
    });
    let proxy = proxy.await;
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "billing:write"]).succeeds().out;
    let mut waiting = ada.command(&["billing", "upgrade", "--no-browser", "--org", "ada", "--json", "--api", &proxy]);
    let mut waiting = waiting.env("SVC_CLI_TOKEN", token.trim()).spawn().unwrap();
    while polls.load(Ordering::SeqCst) <= ERRORS.len() && waiting.try_wait().unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Pay another checkout of the organization. Any paid checkout upgrades the organization.
    let _ = payments.pay(printed.trim());
    let upgraded = finished(waiting).succeeds();
    assert_eq!(upgraded.json()["plan"], "pro");
    upgraded.stderr_contains("Open this URL in a browser:").stderr_contains("/payments/checkouts/");
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_provider_exits_with_code_7_and_a_viewer_cannot_buy() {
    let (platform, payments, ada) = with_provider(&[]).await;
    payments.inject(Some(PaymentsFault::Unavailable));
    for arguments in [&["upgrade"][..], &["portal"]] {
        let refused = billing(&ada, arguments).fails(7);
        refused.stderr_contains("code billing_unavailable").stderr_contains("next: try again in a moment");
    }
    billing(&ada, &["status"]).succeeds();
    payments.inject(None);
    let link = ada.svc(&["orgs", "invite", "grace@navy.example", "--role", "viewer", "--org", "ada"]).succeeds().out;
    let grace = Machine::new(&platform.api);
    grace.svc(&["login", "--dev", "grace"]).succeeds();
    grace.svc(&["orgs", "join", link.trim()]).succeeds();
    billing(&grace, &["status"]).succeeds();
    billing(&grace, &["upgrade"]).fails(4).stderr_contains("ask an admin");
}

async fn wait_for_file(path: &Path) {
    for _ in 0..3000 {
        if path.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} does not exist", path.display());
}

/// The signal reaches the whole process group of `svc`, like that of Ctrl-C.
#[tokio::test(flavor = "multi_thread")]
async fn interruption_of_svc_does_not_end_the_browser() {
    let (_platform, _payments, ada) = with_provider(&[]).await;
    let browser = ada.folder.join("browser");
    let script =
        "#!/bin/sh\n: > opened\nwhile [ -e opened ] && [ ! -e interrupted ]; do sleep 0.1; done\n: > survived\n";
    write_program(&browser, script);
    let mut upgrade = ada.command(&["billing", "upgrade", "--org", "ada"]);
    let mut upgrade = upgrade.env("BROWSER", &browser).process_group(0).spawn().unwrap();
    wait_for_file(&ada.folder.join("opened")).await;
    let kill = format!("kill -TERM -{}", upgrade.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(upgrade.wait().unwrap().signal(), Some(15));
    ada.write("interrupted", "");
    wait_for_file(&ada.folder.join("survived")).await;
}
