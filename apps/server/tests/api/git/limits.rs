//! The limits of each client at the git node.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use russh::ChannelMsg;
use russh::client::{Config, Handle, Msg};
use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate, load_secret_key};
use serde_json::json;
use testkit::bundle::incompressible;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::kit::{token, wrapped_git};
use super::{Kit, REPO};
use crate::support::{client, eventually};

/// The maximum number of git processes that run for one user at the same time.
const MAX_PROGRAMS: usize = 8;
/// The maximum number of SSH connections of an address that have not authenticated.
const MAX_LOGINS: usize = 16;
/// The maximum number of channels that an SSH connection has at the same time.
const MAX_CHANNELS: usize = 10;
/// The maximum number of channels that a client opens on one SSH connection.
const MAX_OPENED_CHANNELS: usize = 256;

/// Starts a fetch whose request never ends.
async fn hold_program(kit: &Kit) -> TcpStream {
    let password = base64::engine::general_purpose::STANDARD.encode(format!("git:{}", kit.token));
    let mut stream = TcpStream::connect(("127.0.0.1", kit.node.http)).await.unwrap();
    let request = format!(
        "POST /ada/site/app.git/git-upload-pack HTTP/1.1\r\nhost: x\r\nauthorization: Basic {password}\r\n\
         content-type: application/x-git-upload-pack-request\r\ncontent-length: 1000\r\n\r\n00"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    // The status of the response shows that the program runs.
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

/// If a user already has the maximum number of git processes, the next one waits. Other users are not affected.
#[tokio::test(flavor = "multi_thread")]
async fn programs_are_limited_by_user() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let work = kit.init("work");
    work.commit("a", b"a");
    work.git(&["push", "--quiet", "origin", "main"]);
    let mia = kit.app.add_member(&kit.ada, "ada", "mia", "member").await;
    let mia = kit.url(&token(&mia, &["git:read"]).await, "app");
    let mut held = Vec::new();
    for _ in 0..MAX_PROGRAMS {
        held.push(hold_program(&kit).await);
    }
    let mut waiting = work.command(&["ls-remote", "origin"]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(work.git(&["ls-remote", &mia]).contains("refs/heads/main"));
    assert!(waiting.try_wait().unwrap().is_none(), "the program of a busy user did not wait");
    drop(held);
    let listed = waiting.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("refs/heads/main"));
}

/// Tests the number of commands of a push, because git reads all commands into memory.
#[tokio::test(flavor = "multi_thread")]
async fn list_of_commands_is_limited() {
    let kit = Kit::start().await;
    kit.create("app").await;
    let command = |number: u32| {
        let command = format!("{:040} {:040} refs/heads/b{number}\0report-status", 0, 1);
        format!("{:04x}{command}", command.len() + 4)
    };
    let url = format!("http://127.0.0.1:{}/ada/site/app.git/git-receive-pack", kit.node.http);
    let body: String = (0..20_000).map(command).collect();
    let request = client().post(&url).basic_auth("git", Some(&kit.token)).body(body);
    // The node ends either the response, without a report, or the connection.
    if let Ok(response) = request.header("content-type", "application/x-git-receive-pack-request").send().await {
        assert!(!response.text().await.unwrap_or_default().contains("unpack"));
    }
    eventually("the exchange is ended", async || {
        let ended = "outcome=\"ended\",program=\"git-receive-pack\",transport=\"http\"} 1";
        kit.metrics().await.lines().any(|line| line.contains("_count") && line.ends_with(ended)).then_some(())
    })
    .await;
    assert_eq!(kit.ada.get(&format!("{REPO}/ref-updates")).await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_connections_before_authentication_are_limited_by_address() {
    let kit = Kit::start().await;
    let ssh = kit.node.ssh;
    let connect = async |address: Ipv4Addr| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let mut stream = socket.connect((Ipv4Addr::LOCALHOST, ssh).into()).await.unwrap();
        let mut banner = [0; 4];
        // A refused connection is closed.
        let accepted = stream.read_exact(&mut banner).await.is_ok_and(|_| banner == *b"SSH-");
        accepted.then_some(stream)
    };
    let address = Ipv4Addr::new(127, 0, 0, 2);
    let mut held = Vec::new();
    for _ in 0..MAX_LOGINS {
        held.push(connect(address).await.unwrap());
    }
    assert!(connect(address).await.is_none());
    assert!(connect(Ipv4Addr::new(127, 0, 0, 3)).await.is_some());
    held.pop();
    eventually("a closed connection does not count", async || connect(address).await).await;
}

/// Opens an SSH connection, and waits until it has authenticated.
fn connect_ssh(key: &Path, port: u16) -> Child {
    let mut ssh = Command::new("ssh");
    ssh.args(["-v", "-N", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]);
    ssh.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
    ssh.arg("-i").arg(key).args(["-p", &port.to_string(), "git@127.0.0.1"]);
    let mut ssh = ssh.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(ssh.stderr.take().unwrap());
    assert!(log.by_ref().lines().any(|line| line.unwrap().contains("Authenticated to")));
    ssh.stderr = Some(log.into_inner());
    ssh
}

#[tokio::test(flavor = "multi_thread")]
async fn authenticated_ssh_connections_are_limited_by_user() {
    let kit = Kit::start_with(&[("SVC_GIT_MAX_CONNECTIONS_PER_USER", "2".to_owned())]).await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let work = kit.init("work");
    let url = kit.ssh_url("app");
    let mut held = [(); 2].map(|()| connect_ssh(&kit.key(), kit.node.ssh));
    let refused = work.fails(&["ls-remote", &url]);
    assert!(refused.contains("svc: you have 2 SSH connections, the maximum"), "{refused}");
    held[0].kill().unwrap();
    held[0].wait().unwrap();
    eventually("a closed connection does not count", async || {
        work.try_git(&["ls-remote", &url]).status.success().then_some(())
    })
    .await;
    for connection in &mut held {
        let _ = connection.kill();
        connection.wait().unwrap();
    }
}

/// An SSH client that accepts every host key.
struct SshClient;

impl russh::client::Handler for SshClient {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

/// Opens an SSH connection with the key of the client. The server can send this number of bytes on each channel.
async fn ssh_client(kit: &Kit, window_size: u32) -> Handle<SshClient> {
    let config = Arc::new(Config { window_size, ..Config::default() });
    let mut client = russh::client::connect(config, ("127.0.0.1", kit.node.ssh), SshClient).await.unwrap();
    let key = PrivateKeyWithHashAlg::new(Arc::new(load_secret_key(kit.key(), None).unwrap()), None);
    assert!(client.authenticate_publickey("git", key).await.unwrap().success());
    client
}

/// Waits until the server closes a channel. Returns the exit code of its command.
async fn exit_code(channel: &mut russh::Channel<Msg>) -> Option<u32> {
    let wait = async {
        let mut code = None;
        while let Some(message) = channel.wait().await {
            if let ChannelMsg::ExitStatus { exit_status } = message {
                code = Some(exit_status);
            }
        }
        code
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.expect("the server closes the channel")
}

/// The commands are refused, and the client accepts no data, so it does not receive the reasons.
#[tokio::test(flavor = "multi_thread")]
async fn ssh_commands_of_a_client_that_does_not_read_are_limited_and_end() {
    let kit = Kit::start().await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let client = ssh_client(&kit, 0).await;
    let mut channels = Vec::new();
    for _ in 0..MAX_CHANNELS {
        let channel = client.channel_open_session().await.unwrap();
        channel.exec(true, "ls").await.unwrap();
        channels.push(channel);
    }
    assert!(client.channel_open_session().await.is_err());
    // The client closes two channels, one of them without a command.
    channels.pop().unwrap().close().await.unwrap();
    let open = async || client.channel_open_session().await.ok();
    let unused = eventually("a closed channel does not count", open).await;
    unused.close().await.unwrap();
    let shell = eventually("a closed channel without a command does not count", open).await;
    shell.request_shell(true).await.unwrap();
    channels.push(shell);
    // This command waits for its request.
    let other = ssh_client(&kit, 1 << 20).await;
    let archive = other.channel_open_session().await.unwrap();
    archive.exec(true, "git-upload-archive '/ada/site/app.git'").await.unwrap();
    channels.push(archive);
    for channel in &mut channels {
        assert_eq!(exit_code(channel).await, Some(128));
    }
}

/// The program of git waits, and reads nothing. The client sends more packets than the node keeps.
#[tokio::test(flavor = "multi_thread")]
async fn data_after_the_end_of_an_input_does_not_block_an_ssh_connection() {
    let folder = tempfile::tempdir().unwrap();
    let hold = folder.path().join("hold");
    std::fs::write(&hold, "").unwrap();
    let wait = format!("while [ -e '{}' ]; do /bin/sleep 0.05; done; exit 3", hold.display());
    let path = wrapped_git(folder.path(), &format!("case \"$*\" in\n*upload-pack*) {wait} ;;\nesac"));
    let kit = Kit::start_with(&[("PATH", path)]).await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let client = ssh_client(&kit, 1 << 20).await;
    let mut channel = client.channel_open_session().await.unwrap();
    channel.exec(true, "git-upload-pack '/ada/site/app.git'").await.unwrap();
    channel.eof().await.unwrap();
    for _ in 0..200 {
        channel.data(&b"x"[..]).await.unwrap();
    }
    let other = tokio::time::timeout(Duration::from_secs(60), client.channel_open_session());
    other.await.expect("the connection is not blocked").unwrap();
    std::fs::remove_file(&hold).unwrap();
    assert_eq!(exit_code(&mut channel).await, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_of_an_ssh_connection_are_limited() {
    let kit = Kit::start().await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let client = ssh_client(&kit, 1 << 20).await;
    for _ in 0..MAX_OPENED_CHANNELS {
        let mut channel = client.channel_open_session().await.unwrap();
        channel.exec(true, "ls").await.unwrap();
        assert_eq!(exit_code(&mut channel).await, Some(128));
    }
    assert!(client.channel_open_session().await.is_err());
    let other = ssh_client(&kit, 1 << 20).await;
    assert!(other.channel_open_session().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_connection_with_data_for_no_command_ends() {
    let kit = Kit::start().await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    for kind in ["data", "extended data", "variable"] {
        let client = ssh_client(&kit, 1 << 20).await;
        let channel = client.channel_open_session().await.unwrap();
        match kind {
            "data" => channel.data(&b"data"[..]).await.unwrap(),
            "extended data" => channel.extended_data(1, &b"data"[..]).await.unwrap(),
            _ => channel.set_env(false, "NAME", "x".repeat(40_000)).await.unwrap(),
        }
        // An unused connection ends after a minute.
        let ended = eventually(kind, async || client.is_closed().then_some(()));
        tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    }
}

/// Sends the first request of a fetch. Returns its status, and whether the response states when to retry.
async fn ask(kit: &Kit, password: Option<&str>) -> (u16, bool) {
    let url = format!("http://127.0.0.1:{}/ada/site/app.git/info/refs?service=git-upload-pack", kit.node.http);
    let request = client().get(url);
    let request = match password {
        Some(password) => request.basic_auth("git", Some(password)),
        None => request,
    };
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.headers().contains_key("retry-after"))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_limited_by_address() {
    let setting = "SVC_GIT_MAX_REQUESTS_PER_MINUTE_PER_ADDRESS";
    let kit = Kit::start_with(&[(setting, "2".to_owned())]).await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    assert_eq!(ask(&kit, None).await, (401, false));
    assert_eq!(ask(&kit, Some("svc_pat_unknown")).await, (401, false));
    for password in [None, Some("svc_pat_unknown"), Some(kit.token.as_str())] {
        assert_eq!(ask(&kit, password).await, (429, true));
    }
    let refused = kit.init("work").fails(&["ls-remote", &kit.ssh_url("app")]);
    assert!(refused.contains("svc: too many requests"), "{refused}");
    // The sign-in and the command.
    let limited = "svc_git_accesses_total{decision=\"limited\",transport=\"ssh\"} 2";
    let metrics = kit.metrics().await;
    assert!(metrics.lines().any(|line| line == limited), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_limited_by_user() {
    let two = NonZeroU32::new(2).unwrap();
    let kit = Kit::with(|config| config.gateway.rate_limits.git = two, &[]).await;
    kit.app.clock.stop();
    kit.create("app").await;
    let other = token(&kit.ada, &["git:read"]).await;
    let mia = token(&kit.app.add_member(&kit.ada, "ada", "mia", "member").await, &["git:read"]).await;
    assert_eq!(ask(&kit, Some(&kit.token)).await, (200, false));
    assert_eq!(ask(&kit, Some(&other)).await, (200, false));
    // All credentials of a user share the limit.
    assert_eq!(ask(&kit, Some(&kit.token)).await, (429, true));
    assert_eq!(ask(&kit, Some(&mia)).await, (200, false));
    assert_eq!(ask(&kit, None).await, (401, false));
}

/// The storage limit of an organization in the test, in bytes.
const STORAGE: usize = 300 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn repositories_of_an_organization_have_a_storage_limit() {
    let mut kit = Kit::with(|config| config.limits.free.repository_bytes = STORAGE as u64, &[]).await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let work = kit.init("work");
    let first = work.commit("a", b"a");
    work.push();
    let size = async || {
        let rows = kit.app.database.rows("SELECT size_bytes FROM git.repositories WHERE size_bytes > 0").await;
        rows.first().map(|row| row["size_bytes"].as_u64().unwrap())
    };
    let before = eventually("the node reports the size", size).await;
    assert!((1..STORAGE as u64).contains(&before), "{before}");
    // A lost report is repeated without a push.
    let fill = format!("UPDATE git.repositories SET size_bytes = {STORAGE}");
    kit.app.database.run(&fill).await;
    kit.node.kill();
    kit.node.restart().await;
    eventually("the node repeats the report", async || size().await.filter(|size| *size == before)).await;

    work.commit("noise", &incompressible(500_000));
    for url in [kit.url(&kit.token, "app"), kit.ssh_url("app")] {
        let refused = work.fails(&["push", &url, "main"]);
        assert!(refused.contains("bytes that the organization may still store"), "{refused}");
        assert!(work.git(&["ls-remote", &url]).contains(&first));
    }
    // A smaller push is accepted.
    work.git(&["reset", "--quiet", "--hard", &first]);
    let second = work.commit("b", b"b");
    work.push();
    assert!(work.git(&["ls-remote", "origin"]).contains(&second));
    eventually("the node reports the new size", async || size().await.filter(|size| *size > before)).await;
    let objects = kit.bare().await.join("objects");
    eventually("the files of the refused pushes are removed", async || {
        let mut entries = std::fs::read_dir(&objects).unwrap().flatten();
        entries.all(|it| ["info", "pack"].iter().any(|name| it.file_name() == *name)).then_some(())
    })
    .await;

    let refused = eventually("a push is refused", async || {
        // The report of an earlier push may still arrive.
        kit.app.database.run(&fill).await;
        let push = work.try_git(&["push", "origin", "main~1:refs/heads/other"]);
        (!push.status.success()).then(|| String::from_utf8(push.stderr).unwrap())
    })
    .await;
    assert!(refused.contains("the free plan allows 307200; upgrade the plan"), "{refused}");
    // A deleted repository counts until it is erased, and fetching is still possible.
    kit.create("second").await;
    kit.ada.delete(REPO).await.expect(204);
    assert!(
        work.fails(&["push", &kit.url(&kit.token, "second"), "main~1:main"]).contains("the free plan allows 307200")
    );
    assert_eq!(work.git(&["ls-remote", &kit.url(&kit.token, "second")]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_refused_without_free_space() {
    let kit = Kit::start_with(&[("SVC_GIT_MIN_FREE", "1000000TiB".to_owned())]).await;
    kit.create("app").await;
    kit.register_key(&kit.ada, &["-t", "ed25519"]).await;
    let work = kit.init("work");
    work.commit("a", b"a");
    for url in [kit.url(&kit.token, "app"), kit.ssh_url("app")] {
        let refused = work.fails(&["push", &url, "main"]);
        assert!(refused.contains("the git node has too little free space"), "{refused}");
        assert_eq!(work.git(&["ls-remote", &url]), "");
    }
}
