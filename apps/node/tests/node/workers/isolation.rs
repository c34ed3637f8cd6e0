//! Isolation of worker code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::control_plane::State;
use rustix::process::geteuid;

use super::escape::own_listener;
use super::name_server::NameServer;
use super::{HOST, Rig};

const REACH: &str = r#"
import { connect } from "cloudflare:sockets";
export default {
  async fetch(request) {
    const url = new URL(request.url);
    const to = url.searchParams.get("to");
    try {
      if (url.pathname === "/fetch") {
        const response = await fetch(to);
        return new Response("reached " + response.status + " " + response.headers.get("proxy-status"));
      }
      const socket = connect(to);
      await socket.opened;
      return new Response("reached " + to);
    } catch (error) { return new Response("refused: " + error); }
  },
};
"#;

/// Returns the worker processes with their `/proc` status.
pub fn processes(rig: &Rig) -> Vec<(u32, String)> {
    let run = rig.dir.path().join("run");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let ours = pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&run)));
    ours.filter_map(|pid| Some((pid, fs::read_to_string(format!("/proc/{pid}/status")).ok()?))).collect()
}

pub fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
}

async fn assert_denied(rig: &Rig, path: &str) {
    let seen = rig.node.visitor.get(HOST, path).await;
    let denied = ["403 svc-node; error=destination_ip_prohibited", "502 svc-node; error=dns_error"];
    let is_denied = denied.iter().any(|denied| seen.body == format!("reached {denied}"));
    assert!(is_denied || seen.body.starts_with("refused: "), "{path}: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_and_private_networks_are_unreachable() {
    // Apart from `localhost`, all hosts are addresses. The name server answers queries for notations of addresses that
    // only a C library accepts, such as `0x7f.1`.
    let names = NameServer::start().await;
    let Some(rig) = Rig::start_with(|workers| workers.egress.resolver = Some(names.address)).await else { return };
    rig.serves(REACH).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener6 = TcpListener::bind("[::1]:0").ok();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let port6 = listener6.as_ref().map_or(port, |it| it.local_addr().unwrap().port());
    for host in [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "198.18.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ] {
        for path in [format!("/fetch?to=http://{host}:{port}/"), format!("/connect?to={host}:{port}")] {
            assert_denied(&rig, &path).await;
        }
    }
    assert_denied(&rig, &format!("/fetch?to=http://[::1]:{port6}/")).await;
    // The internal listener of the control plane, and the front of the node.
    assert_denied(&rig, &format!("/fetch?to={}/internal/v1/desired", rig.core.url())).await;
    assert_denied(&rig, &format!("/fetch?to=http://{}/", rig.node.visitor.address())).await;
    if let Some(listener) = own_listener() {
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        assert_denied(&rig, &format!("/fetch?to=http://{address}/")).await;
        assert_denied(&rig, &format!("/connect?to={address}")).await;
        assert!(listener.accept().is_err());
    }
    assert!(listener.accept().is_err());
    if let Some(listener) = listener6 {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_has_its_own_user_and_no_access_to_the_nodes_files() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(REACH).await;
    rig.core.deploy("two", &[("worker/index.js", REACH.as_bytes())]);
    rig.observes("two", State::Serving).await;

    let processes = processes(&rig);
    assert_eq!(processes.len(), 2);
    let mut uids = Vec::new();
    for (pid, status) in &processes {
        assert_eq!(field(status, "NoNewPrivs:"), "1");
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        assert!(limits.lines().any(|line| line.starts_with("Max core file size") && line.contains(" 0 ")), "{limits}");
        let adjusted = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(adjusted.trim(), "800");
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let open = open.filter_map(|file| fs::read_link(file.path()).ok());
        let of_node: Vec<_> = open.filter(|path| path.starts_with(rig.dir.path())).collect();
        assert!(of_node.iter().all(|path| path.starts_with(rig.dir.path().join("run"))), "{of_node:?}");
        uids.push(field(status, "Uid:").split('\t').next().unwrap().parse::<u32>().unwrap());
        if geteuid().is_root() {
            assert_eq!(field(status, "Groups:"), "");
            assert_eq!(field(status, "CapEff:"), "0000000000000000");
        }
    }
    if !geteuid().is_root() {
        return eprintln!("SKIPPED: only root can change user ids");
    }
    assert!(uids[0] != uids[1] && uids.iter().all(|uid| (300_000..310_000).contains(uid)), "{uids:?}");
    // Workers cannot enter the node's directory.
    let node = fs::metadata(rig.dir.path().join("run")).unwrap();
    assert_eq!((node.uid(), node.permissions().mode() & 0o777), (0, 0o700));
    for (program, name) in [("ls", "blobs"), ("ls", "sites"), ("ls", "run"), ("cat", "desired.json")] {
        let metadata = fs::metadata(rig.dir.path().join(name)).unwrap();
        assert!(metadata.uid() == 0 && metadata.permissions().mode() & 0o077 == 0, "{name}");
        let status = std::process::Command::new("setpriv")
            .args(["--reuid", &uids[0].to_string(), "--clear-groups", program])
            .arg(rig.dir.path().join(name))
            .output()
            .unwrap();
        assert!(!status.status.success(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_worker_socket_is_not_used() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves("export default { fetch() { return new Response('from code') } }").await;
    let folders = fs::read_dir(rig.dir.path().join("run")).unwrap().flatten();
    let folder = folders.map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    let other = rig.dir.path().join("other.sock");
    let listener = std::os::unix::net::UnixListener::bind(&other).unwrap();
    listener.set_nonblocking(true).unwrap();
    for name in ["http", "probe"] {
        fs::remove_file(folder.join(name)).unwrap();
        std::os::unix::fs::symlink(&other, folder.join(name)).unwrap();
    }
    for _ in 0..5 {
        assert_eq!(rig.node.visitor.get(HOST, "/").await.body, "from code");
    }
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert!(listener.accept().is_err(), "the node connected to the replaced socket");
}
