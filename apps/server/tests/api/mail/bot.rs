//! Mail from a client over the mail node to worker code, and the reply over the relay to its recipient.

use std::process::{Child, Command, Stdio};

use convergence::{NodeKind, Nodes};
use kernel::audit::Actor;
use kernel::{ClockRng, Secret};
use providers::{Envelope, Relay, RelayError, SmtpConfig};
use sandbox::{DnsServer, Encryption, RecordType, SmtpServer};
use store::Store;
use testkit::reserved_port;

use crate::convergence::node_process::{Node, program, workerd};
use crate::examples::{Svc, example, wait_for};
use crate::process::Process;

/// A `svc-mail` process.
pub struct MailNode {
    child: Child,
    pub port: u16,
    _folder: tempfile::TempDir,
}

impl MailNode {
    /// Registers a mail node at the server and starts it.
    pub async fn start(server: &Process, dns: &DnsServer) -> Self {
        let store = store::Config::new(Secret::new(server.database.url()), "test");
        let nodes = Nodes::new(Store::new(&store, ClockRng::system()).unwrap());
        let added = nodes.add(&Actor::operator("test"), "mx".parse().unwrap(), NodeKind::Mail).await.unwrap();
        let (port, folder) = (reserved_port(), tempfile::tempdir().unwrap());
        let mut command = Command::new(program("svc-mail"));
        command.env_clear().envs([
            ("SVC_MX_LISTEN", format!("127.0.0.1:{port}")),
            ("SVC_MX_INTERNAL_LISTEN", "127.0.0.1:0".to_owned()),
            ("SVC_MX_HOSTNAME", "mx.example".to_owned()),
            ("SVC_MX_CORE_URL", server.internal.clone()),
            ("SVC_MX_TOKEN", added.token.reveal().to_owned()),
            ("SVC_MX_RESOLVER", dns.address().to_string()),
            ("SVC_MX_DIR", folder.path().display().to_string()),
        ]);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        wait_for("a mail node", async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
        Self { child, port, _folder: folder }
    }

    /// Sends a mail to it as a mail server would.
    async fn send(&self, to: &str, message: &str) -> Result<(), RelayError> {
        let config: SmtpConfig = format!("smtp://127.0.0.1:{}", self.port).parse().unwrap();
        let envelope = Envelope { from: "eve@sender.example".to_owned(), to: vec![to.to_owned()] };
        let client = Relay::new(&config, "sender.example").unwrap();
        client.send(&envelope, message.replace('\n', "\r\n").as_bytes()).await.map(drop)
    }
}

impl Drop for MailNode {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

const MAIL: &str = "From: Eve <eve@sender.example>\nTo: hello@bot.ada.mail.example\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n\
    Message-ID: <1@sender.example>\n\nHello, bot.\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_example_replies_to_the_mail_that_it_receives() {
    let Some(workerd) = workerd() else { return };
    let relay = SmtpServer::start(Encryption::None).await;
    let settings = [
        ("SVC_SMTP_URL", relay.url()),
        ("SVC_MAIL_FROM", "Platform <platform@mail.example>".to_owned()),
        ("SVC_MAIL_DOMAIN", "mail.example".to_owned()),
    ];
    let server = Process::with(&settings).await;
    let svc = Svc::new(&server);
    let storage = format!("file://{}/objects", svc.home.display());
    let node = Node::start(&server, &[("SVC_NODE_WORKERD", workerd), ("SVC_NODE_STORAGE", storage)]).await;
    let dns = DnsServer::start().await;
    dns.set("sender.example", RecordType::TXT, &["v=spf1 ip4:127.0.0.1 -all"]);
    let mail_node = MailNode::start(&server, &dns).await;
    let unknown = mail_node.send("hello@bot.ada.mail.example", MAIL).await.unwrap_err();
    assert!(unknown.to_string().contains("550 5.1.1"), "{unknown}");

    let (code, deployed, stderr) = svc.deploy(&example("mail-bot"), "bot");
    assert_eq!((code, &deployed["status"]), (0, &"serving".into()), "{stderr}");
    assert!(stderr.contains("enabled email"), "{stderr}");
    mail_node.send("hello@bot.ada.mail.example", MAIL).await.unwrap();

    let reply = relay.wait_for(1).await.remove(0);
    assert_eq!(
        (reply.from.as_str(), &reply.to),
        ("hello@bot.ada.mail.example", &vec!["eve@sender.example".to_owned()])
    );
    let text = String::from_utf8(reply.raw).unwrap();
    assert!(text.contains("In-Reply-To: <1@sender.example>"), "{text}");
    let page = wait_for("the page of the bot", async || {
        node.page("bot-ada.localhost", "/").await.filter(|page| page.contains("Gr\u{fc}\u{df}e"))
    });
    assert!(page.await.contains("(replied)"));
    let log = wait_for("the outcomes", async || {
        let (_, log, _) = svc.run(&["email", "log", "--org", "ada", "--project", "bot"]);
        let outcomes: Vec<_> = log["items"].as_array()?.iter().map(|mail| mail["outcome"].clone()).collect();
        (outcomes == ["sent", "received"]).then_some(log)
    });
    let log = log.await;
    assert_eq!(log["items"][1]["spf"], "pass", "{log}");
    let id = log["items"][1]["id"].as_str().unwrap();
    let raw = svc.output(&["email", "raw", id, "--org", "ada", "--project", "bot"]);
    let start = "Return-Path: <eve@sender.example>\r\nAuthentication-Results: mx.example;\r\n\tspf=pass ";
    assert!(raw.starts_with(start), "{raw}");
    assert!(raw.contains("\r\nReceived: from sender.example "), "{raw}");
    assert!(raw.ends_with("Hello, bot.\r\n"), "{raw}");

    svc.run(&["email", "disable", "--org", "ada", "--project", "bot"]);
    let revoked = mail_node.send("hello@bot.ada.mail.example", MAIL).await.unwrap_err();
    assert!(revoked.to_string().contains("550 5.1.1"), "{revoked}");
}
