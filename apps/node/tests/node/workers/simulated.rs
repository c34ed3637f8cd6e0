//! A simulated worker, for behavior that `workerd` prevents: a program that speaks HTTP on the sockets of a worker.
//!
//! The node starts it in place of `svc-node --exec-worker`. It is this test program, so it needs no other one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, exit};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};

/// The value of `launcher` in the node's configuration.
pub const LAUNCHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/workers/simulated.sh");

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
const REFUSAL: &str = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
    7\r\nrefused\r\n0\r\n\r\n";

/// The worker, if the node started this process; otherwise an empty test.
#[test]
fn worker() {
    let Some(arguments) = std::env::var_os("SVC_TEST_WORKER_ARGUMENTS") else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    // The arguments are: `--exec-worker <parent> <uid> <memory> <folder> <workerd>`.
    let arguments: Vec<&str> = arguments.to_str().unwrap().split(' ').collect();
    let uid = arguments[2].parse::<u32>().ok();
    // The sockets have relative paths, because most paths are longer than a socket address may be.
    std::env::set_current_dir(arguments[4]).unwrap();
    // The node opens both sockets when the second one responds.
    let (http, probe) = (listen("http", uid), listen("probe", uid));
    thread::spawn(move || serve(&probe, |_| answer("ok")));
    serve(&http, move |path| respond(path, uid));
}

fn listen(name: &str, uid: Option<u32>) -> UnixListener {
    let temporary = format!("{name}.new");
    let listener = UnixListener::bind(&temporary).unwrap();
    chown(&temporary, uid, uid).unwrap();
    fs::rename(temporary, name).unwrap();
    listener
}

fn serve(listener: &UnixListener, respond: impl Fn(&str) -> String + Copy + Send + 'static) {
    for connection in listener.incoming() {
        thread::spawn(move || {
            let mut connection = connection.unwrap();
            if let Some(path) = requested_path(&mut connection) {
                let _ = connection.write_all(respond(&path).as_bytes());
            }
        });
    }
}

fn requested_path(connection: &mut UnixStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    Some(str::from_utf8(&head).ok()?.split(' ').nth(1)?.to_owned())
}

fn answer(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn respond(path: &str, uid: Option<u32>) -> String {
    match path {
        "/websocket" => format!("{SWITCH}Upgrade: websocket\r\n\r\nswitched"),
        "/other-protocol" => format!("{SWITCH}Upgrade: other\r\n\r\nswitched"),
        "/two-protocols" => format!("{SWITCH}Upgrade: websocket\r\nUpgrade: other\r\n\r\nswitched"),
        "/no-protocol" => format!("{SWITCH}\r\nswitched"),
        "/refusal" => REFUSAL.to_owned(),
        "/uid" => answer(&uid.unwrap().to_string()),
        // The new process must survive this one: it must have another parent, and another process group.
        "/daemon" => {
            let mut shell = Command::new("sh");
            shell.args(["-c", "setsid sleep 100 </dev/null >/dev/null 2>&1 & echo $!"]).uid(uid.unwrap());
            let daemon = shell.output().unwrap().stdout;
            answer(String::from_utf8(daemon).unwrap().trim())
        }
        "/exit" => exit(1),
        _ => answer("from code"),
    }
}
