//! The commands that have no separate test file, in the order of typical use.

use sandbox::{DnsServer, Encryption, RecordType, SmtpServer};
use serde_json::{Value, json};

use crate::support::{Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn manages_organizations_and_projects() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    assert_eq!(ada.json(&["orgs", "create", "acme", "--name", "Acme Inc."])["name"], "Acme Inc.");
    ada.svc(&["orgs", "create", "acme"]).fails(1).stderr_contains("code slug_taken, request ");
    let refused = ada.svc(&["orgs", "create", "A!"]).fails(1);
    refused.stderr_contains("slug: must be");
    assert_eq!(refused.err.matches("must be").count(), 1, "{refused:?}");
    let listed = ada.svc(&["orgs", "list"]).succeeds().out;
    assert!(listed.lines().any(|line| line.starts_with("acme  admin  free  Acme Inc.")), "{listed}");

    ada.svc(&["projects", "list"]).fails(2).stderr_contains("--org");
    ada.svc(&["projects", "create", "site", "--org", "nowhere"]).fails(5).stderr_contains("svc orgs list");
    assert_eq!(ada.json(&["projects", "create", "site", "--org", "acme"])["hostname"], "site-acme.localhost");
    ada.svc(&["projects", "create", "shop", "--org", "acme"]).succeeds();
    let page = ada.json(&["projects", "list", "--org", "acme", "--limit", "1"]);
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = ada.json(&["projects", "list", "--org", "acme", "--cursor", cursor]);
    assert_eq!((page["items"].as_array().unwrap().len(), rest["items"].as_array().unwrap().len()), (1, 1));
    ada.svc(&["projects", "list", "--org", "acme", "--limit", "1"])
        .succeeds()
        .stderr_contains(&format!("--cursor {cursor}"));

    let shown = ada.svc(&["projects", "show", "site", "--org", "acme"]).succeeds().out;
    assert!(shown.contains("http://site-acme.localhost:8088"), "{shown}");
    assert_eq!(ada.json(&["projects", "rename", "shop", "store", "--org", "acme"])["name"], "store");
    ada.svc(&["projects", "delete", "store", "--org", "acme"]).fails(2).stderr_contains("--yes");
    assert_eq!(ada.json(&["projects", "delete", "store", "--org", "acme", "--yes"]), Value::Null);
    ada.svc(&["projects", "show", "store", "--org", "acme"]).fails(5).stderr_contains("svc projects list");

    let audit = ada.svc(&["audit", "--org", "acme"]).succeeds().out;
    for event in ["org.create", "project.create", "project.delete"] {
        let line = audit.lines().find(|line| line.contains(event)).unwrap();
        assert!(line.contains(" ada ") && line.contains(" ses_"), "no actor and credential in {line}");
    }
    let only = ada.json(&["audit", "--org", "acme", "--event", "org.create"]);
    assert_eq!(only["items"].as_array().unwrap().len(), 1);
    let none = ada.json(&["audit", "--org", "acme", "--until", "2020-01-01T00:00:00Z"]);
    assert_eq!(none, json!({ "items": [], "nextCursor": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_is_mailed_and_accepted_once() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let settings = [("SVC_SMTP_URL", smtp.url()), ("SVC_MAIL_FROM", "svc@svc.example".to_owned())];
    let platform = Platform::with(&settings).await;
    let ada = platform.ada();
    ada.svc(&["orgs", "create", "acme"]).succeeds();
    ada.svc(&["orgs", "invite", "grace@navy.example"]).fails(2).stderr_contains("--org");
    let invited = ada.svc(&["orgs", "invite", "grace@navy.example", "--role", "viewer", "--org", "acme"]).succeeds();
    invited.stderr_contains("invited grace@navy.example as viewer");
    let mail = String::from_utf8(smtp.wait_for(1).await[0].raw.clone()).unwrap();
    let link = invited.out.trim();
    assert!(mail.replace("=\r\n", "").contains(link), "{link} is not in {mail}");

    let grace = Machine::new(&platform.api);
    grace.svc(&["orgs", "join", link]).fails(3);
    grace.svc(&["login", "--dev", "grace"]).succeeds();
    grace.svc(&["orgs", "join", link]).succeeds().stderr_contains("you are a viewer of acme");
    let token = link.rsplit('/').next().unwrap();
    assert!(ada.svc(&["orgs", "join", token]).code != 0, "a used invitation was accepted again");
    let orgs = grace.json(&["orgs", "list"]);
    let acme = orgs["items"].as_array().unwrap().iter().find(|org| org["slug"] == "acme");
    assert_eq!(acme.unwrap()["role"], "viewer");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_added_changed_and_removed_and_can_leave() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    ada.svc(&["orgs", "create", "acme"]).succeeds();
    assert_eq!(ada.json(&["orgs", "rename", "Acme Inc.", "--org", "acme"])["name"], "Acme Inc.");
    let grace = Machine::new(&platform.api);
    grace.svc(&["login", "--dev", "grace"]).succeeds();
    let elsewhere = ada.svc(&["members", "add", "grace", "--org", "acme"]).fails(5);
    elsewhere.stderr_contains("no user grace of the provider codehost").stderr_contains("next: `svc whoami` shows");
    elsewhere.stderr_contains("send you their subject, the number in GET /v1/me");
    let add = ["members", "add", "grace", "--provider", "dev", "--role", "viewer", "--org", "acme"];
    let added = ada.svc(&add).succeeds();
    added.stderr_contains("added grace as viewer");
    let id = added.out.trim();
    ada.svc(&add).fails(1).stderr_contains("code already_member");
    ada.svc(&["members", "role", id, "member", "--org", "acme"])
        .succeeds()
        .stderr_contains("the role of grace in acme is member");
    let listed = grace.svc(&["members", "list", "--org", "acme"]).succeeds().out;
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.iter().any(|row| row[..4] == [id, "grace", "dev", "member"]), "{listed}");

    grace.svc(&["orgs", "leave", "--org", "acme"]).fails(2).stderr_contains("--yes");
    grace.svc(&["orgs", "leave", "--yes", "--org", "acme"]).succeeds().stderr_contains("you left acme");
    ada.svc(&["members", "remove", id, "--yes", "--org", "acme"]).fails(5);
    ada.svc(&["orgs", "leave", "--yes", "--org", "acme"]).fails(1).stderr_contains("code last_admin");
    ada.svc(&add).succeeds();
    ada.svc(&["members", "remove", id, "--org", "acme"]).fails(2).stderr_contains("--yes");
    assert_eq!(ada.json(&["members", "remove", id, "--yes", "--org", "acme"]), Value::Null);
    assert_eq!(ada.json(&["members", "list", "--org", "acme"])["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_are_shown_listed_and_revoked() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    ada.svc(&["orgs", "create", "acme", "--name", "Acme Inc."]).succeeds();
    let invited = ada.svc(&["orgs", "invite", "grace@navy.example", "--role", "viewer", "--org", "acme"]).succeeds();
    let link = invited.out.trim();
    // The link needs no sign-in.
    let shown = Machine::new(&platform.api).svc(&["invites", "show", link]).succeeds().out;
    for text in ["acme (Acme Inc.)", "viewer", "pending"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let listed = ada.svc(&["invites", "list", "--org", "acme"]).succeeds().out;
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[1..4], ["grace@navy.example", "viewer", "pending"]);
    ada.svc(&["invites", "revoke", row[0], "--org", "acme"]).succeeds().stderr_contains("revoked inv_");
    assert_eq!(ada.json(&["invites", "list", "--org", "acme"])["items"], json!([]));
    let grace = Machine::new(&platform.api);
    grace.svc(&["login", "--dev", "grace"]).succeeds();
    grace.svc(&["orgs", "join", link]).fails(1).stderr_contains("code invite_revoked");
    ada.svc(&["invites", "revoke", row[0], "--org", "acme"]).fails(5);
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_and_the_overview_of_a_project_are_shown() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    for name in ["blog", "shop"] {
        ada.svc(&["projects", "create", name]).succeeds();
    }
    ada.svc(&["projects", "create", "one-too-many"]).fails(1).stderr_contains("svc billing upgrade");
    let listed = ada.svc(&["notifications"]).succeeds().out;
    assert!(listed.lines().nth(1).unwrap().contains("limit.projects"), "{listed}");
    assert_eq!(ada.json(&["notifications"])["items"][0]["kind"], "limit.projects");

    ada.svc(&["deploy", "--no-wait"]).succeeds();
    let overview = ada.svc(&["projects", "overview"]).succeeds().out;
    for text in
        ["live      version 1 of ", ", pending\n", "database  off\n", "VERSION  STATUS   CREATED\n1        pending  "]
    {
        assert!(overview.contains(text), "{text}: {overview}");
    }
    assert_eq!(ada.json(&["projects", "overview", "blog", "--org", "ada"])["live"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn manages_hostnames_and_access_and_opens_a_project() {
    let platform = Platform::start().await;
    let mut ada = platform.ada_with_site();
    let added = ada.svc(&["hostnames", "add", "www.example.org"]).succeeds();
    added.stderr_contains("_svc-verify.www.example.org TXT svc-verify=").stderr_contains("CNAME fallback.localhost");
    assert_eq!(added.out.trim(), "www.example.org  pending_dns");
    assert!(!added.err.contains('–'), "{added:?}");
    let verified = ada.svc(&["hostnames", "verify", "www.example.org", "--json"]).fails(8);
    verified.stderr_contains("error: www.example.org: Ownership is not verified.");
    let verified = verified.json();
    assert_eq!((&verified["state"], verified["checks"].is_array()), (&json!("pending_dns"), true));
    let listed = ada.svc(&["hostnames", "list"]).succeeds().out;
    assert!(listed.contains("site-ada.localhost  default  active"), "{listed}");
    let hsts = |options: &[&'static str]| [&["hostnames", "hsts", "www.example.org"], options].concat();
    let set = ada.svc(&hsts(&["--max-age", "31536000", "--include-subdomains", "--preload"])).succeeds();
    assert_eq!(set.out.trim(), "www.example.org  max-age=31536000; includeSubDomains; preload");
    ada.svc(&hsts(&["--max-age", "300", "--preload"])).fails(1).stderr_contains("preload: requires includeSubDomains");
    let listed = ada.svc(&["hostnames", "list"]).succeeds().out;
    assert!(listed.contains("max-age=31536000; includeSubDomains; preload"), "{listed}");
    ada.svc(&hsts(&["--off", "--max-age", "1"])).fails(2);
    ada.svc(&hsts(&[])).fails(2);
    assert_eq!(ada.json(&hsts(&["--off"])), Value::Null);
    assert_eq!(ada.json(&hsts(&["--max-age", "0"]))["hsts"]["maxAge"], 0);
    assert_eq!(ada.json(&["hostnames", "remove", "www.example.org"]), Value::Null);
    ada.svc(&["hostnames", "remove", "www.example.org"]).fails(5);
    ada.svc(&["hostnames", "remove", ".."]).fails(2);

    assert_eq!(ada.json(&["access", "show"])["mode"], "public");
    ada.svc(&["access", "set", "anyone"]).fails(2);
    ada.svc_with_stdin("short\n", &["access", "set", "password"])
        .fails(1)
        .stderr_contains("password: must have at least 8");
    ada.svc_with_stdin("open sesame\n", &["access", "set", "password"]).succeeds();
    ada.svc(&["access", "set", "org", "--keep-password"]).fails(2).stderr_contains("only for the mode password");
    ada.svc(&["access", "set", "org"]).succeeds();
    ada.svc(&["access", "set", "password", "--keep-password"]).succeeds();
    let key = ada.svc(&["access", "bypass"]).succeeds().out;
    assert!(key.starts_with("svc_byp_"));
    let refused = ada.svc(&["access", "bypass"]).fails(2);
    refused.stderr_contains("The project has a bypass key").stderr_contains("nothing was replaced: confirm with --yes");
    assert_eq!(refused.out, "");
    let replaced = ada.svc(&["access", "bypass", "--yes"]).succeeds().out;
    assert!(replaced.starts_with("svc_byp_") && replaced != key);
    let policy = ada.svc(&["access", "show"]).succeeds().out;
    assert_eq!(policy, "mode        password\npassword    yes\nbypass key  yes\n");
    ada.svc(&["access", "bypass", "--revoke"]).succeeds();
    assert_eq!(ada.json(&["access", "show"])["hasBypass"], false);

    let address = "http://site-ada.localhost:8088\n";
    assert_eq!(ada.svc(&["open", "--no-browser"]).succeeds().out, address);
    ada.browser();
    ada.svc(&["open"]).succeeds();
    assert_eq!(ada.opened().await, address.trim_end());
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_hostname_is_added_with_its_txt_record() {
    let dns = DnsServer::start().await;
    let platform = Platform::with(&[("SVC_DNS_RESOLVER", dns.address().to_string())]).await;
    platform.ada_with_site().svc(&["hostnames", "add", "www.example.org"]).succeeds();
    let bob = Machine::new(&platform.api);
    bob.svc(&["login", "--dev", "bob"]).succeeds();
    bob.svc(&["projects", "create", "site", "--org", "bob"]).succeeds();
    let add = ["hostnames", "add", "www.example.org", "--org", "bob", "--project", "site"];
    let refused = bob.svc(&add).fails(1);
    refused.stderr_contains("another project uses the hostname").stderr_contains("next: if you own the domain");
    let record = refused.err.lines().find(|line| line.starts_with("  _svc-verify.www.example.org TXT "));
    let value = record.unwrap().split_whitespace().last().unwrap();
    dns.set("_svc-verify.www.example.org", RecordType::TXT, &[value]);
    let added = bob.svc(&add).succeeds();
    assert_eq!(added.out.trim(), "www.example.org  active");
    let verify = ["hostnames", "verify", "www.example.org", "--org", "bob", "--project", "site"];
    bob.svc(&verify).succeeds().stderr_contains("www.example.org is active");
    // The hostname stays active for some days without the record.
    dns.remove("_svc-verify.www.example.org", "TXT").unwrap();
    let unverified = bob.svc(&verify).fails(8);
    assert_eq!(unverified.out.trim(), "www.example.org  active");
    unverified.stderr_contains("error: www.example.org: Ownership is not verified.");
    assert!(!unverified.err.contains("is active"), "{unverified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_have_their_scopes_until_revoked() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.svc(&["tokens", "create", "ci"]).fails(2);
    ada.svc(&["tokens", "create", "ci", "--scope", "everything"]).fails(2);
    ada.svc(&["tokens", "create", "ci", "--scope", "deploy", "--only-project", "site"]).fails(2);
    let limits = ["--scope", "project:read", "--only-org", "ada", "--only-project", "site"];
    let created =
        ada.json(&[&["tokens", "create", "ci", "--expires-at", "2100-01-01T00:00:00Z"], &limits[..]].concat());
    let expected = json!({ "org": "ada", "projects": ["site"], "zones": null });
    assert_eq!((&created["restrict"], &created["scopes"]), (&expected, &json!(["project:read"])));

    let mut ci = platform.ada();
    ci.environment.insert("SVC_CLI_TOKEN", created["token"].as_str().unwrap().to_owned());
    assert_eq!(ci.json(&["projects", "show", "site", "--org", "ada"])["name"], "site");
    ci.svc(&["projects", "create", "more", "--org", "ada"]).fails(4);
    let id = created["id"].as_str().unwrap();
    let listed = ada.svc(&["tokens", "list"]).succeeds().out;
    assert!(listed.contains(id) && listed.contains("  ada: project site  until 2100-01-01"), "{listed}");
    ada.svc(&["tokens", "create", "old", "--scope", "deploy", "--only-org", "ada"]).succeeds();
    let expire = "UPDATE identity.access_tokens SET expires_at = '2001-01-01T00:00:00Z' WHERE name = 'old'";
    platform.database.run(expire).await;
    let listed = ada.svc(&["tokens", "list"]).succeeds().out;
    let old = listed.lines().find(|line| line.contains("  old  ")).unwrap();
    assert!(old.contains("  ada  ") && old.contains("  expired 2001-01-01"), "{listed}");
    ada.svc(&["tokens", "revoke", id]).succeeds();
    let refused = ci.svc(&["projects", "show", "site", "--org", "ada"]).fails(3);
    refused.stderr_contains("next: SVC_CLI_TOKEN is not valid: unset or replace it");
    ada.svc(&["tokens", "revoke", "nope"]).fails(5).stderr_contains("the id or the name has the wrong form");
    assert!(ada.svc(&["tokens", "list"]).succeeds().out.contains("revoked "));
}

#[test]
fn prints_completions_and_rejects_invalid_commands() {
    let machine = crate::support::Machine::new("http://127.0.0.1:9");
    for shell in ["bash", "zsh", "fish"] {
        assert!(machine.svc(&["completion", shell]).succeeds().out.contains("hostnames"), "{shell}");
    }
    machine.svc(&[]).fails(2);
    machine.svc(&["frobnicate"]).fails(2);
    machine.svc(&["deploy", "--creat"]).fails(2).stderr_contains("'--create'");
    machine.svc(&["--version"]).succeeds();
}
