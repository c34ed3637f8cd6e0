//! The node loses no accepted mail when its process is killed.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::control_plane::{BLOG, ControlPlane, SHOP, TOKEN};
use super::fixture::HOST;

/// A `svc-mail` process that is killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(address: SocketAddr, core: &str, directory: &Path) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_svc-mail"));
        program
            .env("SVC_MX_LISTEN", address.to_string())
            .env("SVC_MX_INTERNAL_LISTEN", "127.0.0.1:0")
            .env("SVC_MX_HOSTNAME", HOST)
            .env("SVC_MX_CORE_URL", core)
            .env("SVC_MX_TOKEN", TOKEN)
            .env("SVC_MX_DIR", directory)
            .env("SVC_MX_MAX_MAILS_PER_MINUTE_PER_ADDRESS", "1000000");
        Self(program.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The outcome of a mail in the journal of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    Unknown,
}

/// Sends mails with unique subjects until the connection breaks. Returns the subjects.
async fn send_until_killed(
    address: SocketAddr,
    client: usize,
    acknowledged: watch::Sender<usize>,
) -> Vec<(String, Outcome)> {
    let mut journal = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address).await else { return journal };
    let mut buffer = vec![0; 4096];
    let body = "x".repeat(20_000);
    for number in 0.. {
        let subject = format!("mail {client} {number}");
        let envelope = format!("MAIL FROM:<>\r\nRCPT TO:<a@{BLOG}>\r\nRCPT TO:<a@{SHOP}>\r\nDATA\r\n");
        let data = format!("Subject: {subject}\r\n\r\n{body}\r\n.\r\n");
        let steps = [("EHLO localhost\r\n", "250 "), (&envelope, "354 "), (&data, "250 2.0.0 queued")];
        for (bytes, expected) in &steps[usize::from(number > 0)..] {
            if stream.write_all(bytes.as_bytes()).await.is_err() {
                return journal;
            }
            if bytes.starts_with("Subject") {
                journal.push((subject.clone(), Outcome::Unknown));
            }
            let mut reply = String::new();
            while !reply.contains(expected) {
                match stream.read(&mut buffer).await {
                    Ok(length) if length > 0 => reply += &String::from_utf8_lossy(&buffer[..length]),
                    _ => return journal,
                }
            }
        }
        journal.last_mut().unwrap().1 = Outcome::Acknowledged;
        acknowledged.send_modify(|count| *count += 1);
    }
    journal
}

async fn wait_until_ready(address: SocketAddr) {
    let ready = async {
        while TcpStream::connect(address).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), ready).await.unwrap();
}

#[tokio::test]
async fn acknowledged_mail_survives_kills() {
    // While this socket is open, no other process gets the port. The node can listen on it, because both sockets set
    // `SO_REUSEADDR`.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.set_reuseaddr(true).unwrap();
    reserved.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = reserved.local_addr().unwrap();
    let (core, directory) = (ControlPlane::start(), tempfile::tempdir().unwrap());
    let mut journal = Vec::new();
    for round in 0..6 {
        // Only in some rounds, the control plane receives mail, so that kills also interrupt hand-overs.
        core.fail((round % 2 == 0).then_some(""));
        let process = Process::start(address, &core.url(), directory.path());
        wait_until_ready(address).await;
        let (mut clients, acknowledged) = (JoinSet::new(), watch::Sender::new(0));
        for client in 0..8 {
            clients.spawn(send_until_killed(address, round * 8 + client, acknowledged.clone()));
        }
        acknowledged.subscribe().wait_for(|count| *count > 5 * round).await.unwrap();
        process.kill();
        journal.extend(clients.join_all().await.into_iter().flatten());
    }
    core.fail(None);
    let _process = Process::start(address, &core.url(), directory.path());
    while std::fs::read_dir(directory.path()).unwrap().count() > 1 {
        sleep(Duration::from_millis(10)).await;
    }
    let mut copies = BTreeMap::new();
    for received in core.received() {
        *copies.entry((received.mail.subject.unwrap(), received.mail.project)).or_insert(0) += 1;
    }
    let acknowledged = journal.iter().filter(|(_, outcome)| *outcome == Outcome::Acknowledged).count();
    assert!(acknowledged > 20, "{acknowledged} mails");
    for (subject, outcome) in journal {
        let count = |project: &str| copies.get(&(subject.clone(), project.to_owned())).copied().unwrap_or(0);
        let counts = [count("prj_blog"), count("prj_shop")];
        match outcome {
            Outcome::Acknowledged => assert_eq!(counts, [1, 1], "{subject}"),
            // Both copies exist or none, because a mail is stored as a whole.
            Outcome::Unknown => assert!([[0, 0], [1, 1]].contains(&counts), "{subject}: {counts:?}"),
        }
    }
}
