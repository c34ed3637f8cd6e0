//! Runs the tour of the README in a shell against a server and a node.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use sandbox::{
    AiServer, DnsServer, Encryption, IdentityProvider, IdentityServer, PaymentsServer, RegistrarServer, SmtpServer,
};
use testkit::{PrivatePostgres, reserved_port};

use crate::convergence::node_process::{Node, program, workerd};
use crate::git::kit::GitNode;
use crate::mail::bot::MailNode;
use crate::oauth::kit::{public, register_at};
use crate::process::Process;

/// The number of shell blocks at the end of the tour that need `workerd`, because they deploy worker code or follow such
/// a block.
const BLOCKS_WITH_CODE: usize = 7;
/// The number of the last of these blocks that also need the programs of Postgres, or follow such a block.
const BLOCKS_WITH_DATABASE: usize = 3;
/// The address of the last block in `cargo xtask dev --tls`. The server of this test issues no certificates.
const TLS_ADDRESS: &str = "--cacert ../.svc/dev/pebble/roots.pem https://secure-club.localhost:8443/";

/// Returns the shell blocks of the tour, without the last `omitted` ones.
fn tour(omitted: usize) -> String {
    let readme = include_str!("../../../../README.md");
    let tour = readme.split("## The tour").nth(1).expect("the README has no tour").split("\n## ").next().unwrap();
    let blocks = tour.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut blocks: Vec<&str> = blocks.collect();
    blocks.truncate(blocks.len() - omitted);
    blocks.join("\n")
}

/// Creates the parts of a built checkout that the tour uses.
fn checkout(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::create_dir_all(folder.join("target/debug")).unwrap();
    symlink(root.join("examples"), folder.join("examples")).unwrap();
    symlink(program("svc"), folder.join("target/debug/svc")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readme_tour_works() {
    let workerd = workerd();
    let (public_port, edge_port) = (reserved_port(), reserved_port());
    let payments = PaymentsServer::start(Some(format!("http://127.0.0.1:{public_port}/v1/hooks/payments"))).await;
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/ai-models.example.json");
    let registrar = RegistrarServer::start().await;
    let relay = SmtpServer::start(Encryption::None).await;
    let mut settings = [&payments.settings()[..], &registrar.settings()].concat();
    settings.push(("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost".to_owned()));
    settings.push(("SVC_SMTP_URL", relay.url()));
    settings.push(("SVC_MAIL_FROM", "platform@mail.localhost".to_owned()));
    settings.push(("SVC_MAIL_DOMAIN", "mail.localhost".to_owned()));
    settings.push(("SVC_OAUTH_ISSUER", "http://127.0.0.1".to_owned()));
    settings.push(("SVC_AI_MODELS", models.display().to_string()));
    settings.push(("SVC_SITE_URL", format!("http://{{hostname}}:{edge_port}")));
    let server = Process::at(public_port, &settings).await;
    let (upstream, identity) = (AiServer::start().await, IdentityServer::start().await);
    // Ada approved an app before the tour. The tour lists it and ends its access.
    let (connected_app, ada) = register_at(&server, public()).await;
    let tokens = connected_app.sign_in(&ada).await;
    ada.with_token(&tokens.access).get("/v1/me").await.expect(200);
    let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
    let folder = std::env::temp_dir().join(format!("svc-tour-{}", port(&server.base)));
    let mut settings = vec![("SVC_NODE_STORAGE", format!("file://{}/objects", folder.display()))];
    settings.extend(upstream.settings());
    settings.extend(identity.settings());
    settings.extend(workerd.clone().map(|it| ("SVC_NODE_WORKERD", it)));
    let postgres = workerd.as_ref().and_then(|_| PrivatePostgres::start());
    if let Some(postgres) = &postgres {
        settings.extend([
            ("SVC_NODE_DATABASE_URL", postgres.url()),
            ("SVC_NODE_DATABASE_ADDRESS", postgres.address()),
            ("SVC_NODE_DATABASE_SSLMODE", "disable".to_owned()),
            ("SVC_NODE_PG_BIN", postgres.programs().display().to_string()),
            ("SVC_NODE_BACKUPS", format!("file://{}/backups", folder.display())),
        ]);
    }
    let _node = Node::at(&server, edge_port, &settings).await;
    let git = GitNode::start(&server.database.url(), &server.internal).await;
    let mail = MailNode::start(&server, &DnsServer::start().await).await;
    let edge = format!(":{edge_port}");
    let identity_base = identity.url(IdentityProvider::CodeHost).split_once("/identity").unwrap().0;
    let omitted = match (&workerd, &postgres) {
        (None, _) => BLOCKS_WITH_CODE,
        (_, None) => BLOCKS_WITH_DATABASE,
        (Some(_), Some(_)) => 0,
    };
    let script = tour(omitted).replace("http://127.0.0.1:8080", &server.base).replace(":8088", &edge);
    let script = script.replace(":8093", &format!(":{}", git.http)).replace(":2525", &format!(":{}", mail.port));
    let script = script.replace("http://127.0.0.1:8090", identity_base);
    assert!(omitted > 0 || script.contains(TLS_ADDRESS), "the tour does not use TLS");
    let script = script.replace(TLS_ADDRESS, &format!("http://secure-club.localhost{edge}/"));
    assert!(script.contains(&server.base), "the tour does not use the API");
    // Wait for the webhook of the payment, and for the binding of the models.
    let ready =
        "until svc ai ledger --org ada | grep topup && curl -s http://chat-ada.localhost:8088/models | grep small";
    let ready =
        format!("{ready}; do command sleep 0.1; done >/dev/null\ncurl -sS http://chat-ada").replace(":8088", &edge);
    let script = script.replace("sleep 1\ncurl -sS http://chat-ada", &ready);
    // Replace `sleep` with a wait for the effect of the access policy, and for the binding of the database.
    let script = format!(
        "status() {{ curl -s -o /dev/null -w '%{{http_code}}' http://$1.localhost{edge}/ -H \"$2\"; }}\n\
         sleep() {{\n\
         until [ $(status site-acme 'X: y') = 401 ] && [ $(status site-acme \"Svc-Access-Bypass: $KEY\") = 200 ] &&\n\
         [ $(status todo-ada 'X: y') != 503 ]; do command sleep 0.1; done\n\
         }}\n{script}"
    );
    checkout(&folder);
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &script]).current_dir(&folder);
    if let Some(postgres) = &postgres {
        let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
        shell.env("PATH", format!("{}:{path}", postgres.programs().display()));
    }
    shell.env("XDG_CONFIG_HOME", folder.join("config")).env("SVC_CLI_API", &server.base).env("NO_PROXY", "*");
    let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{out}\n{err}");
    let member = "<p>You are signed in as <strong>Ada Lovelace</strong> (ada@mail.example).</p>";
    let is_expected =
        |line: &&str| line.starts_with("<h1>") || ["401", "data: [DONE]", "<p>Hello, bot</p>", member].contains(line);
    let seen: Vec<&str> = out.lines().filter(is_expected).collect();
    let (hello, again) = ("<h1>Hello</h1>", "<h1>Hello again</h1>");
    let guests = r#"<h1><a href="/">Guest book</a></h1>"#;
    let code = ["<h1>Hello, Ada</h1>", guests, "data: [DONE]", "<p>Hello, bot</p>", "<h1>To do</h1>", member, hello];
    let mut expected = vec![hello, again, hello, "401", hello, "<h1>Hello from git</h1>"];
    expected.extend(&code[..BLOCKS_WITH_CODE - omitted]);
    assert_eq!(seen, expected, "{out}\n{err}");
    assert!(out.contains("Begin by Ada"), "the commit is not in {out}\n{err}");
    assert!(out.contains("remote: deployed version "), "the push is not deployed in {out}\n{err}");
    for event in ["deployment.rollback", "access.bypass.new", "project.create"] {
        assert!(out.contains(event), "{event} is not in {out}\n{err}");
    }
    let listed = out.lines().find(|line| line.starts_with(&tokens.sid()));
    assert!(listed.is_some_and(|line| line.contains("Example app")), "the app is not listed in {out}\n{err}");
    if workerd.is_some() {
        let reply = relay.wait_for(1).await.remove(0);
        assert_eq!(reply.to, ["eve@example.org"]);
    }
    let domain = registrar.domain("my-shop.com").expect("the domain is not registered");
    assert_eq!(domain["nameservers"], serde_json::json!(["ns1.localhost", "ns2.localhost"]));
    assert!(out.contains("www.my-shop.com  active"), "the hostname is not active in {out}\n{err}");
    for text in ["\"authorization_endpoint\"", "\"ES256\""] {
        assert!(out.contains(text), "{text} is not in {out}\n{err}");
    }
    ada.with_token(&tokens.access).get("/v1/me").await.expect_error(401, "unauthenticated");
}
