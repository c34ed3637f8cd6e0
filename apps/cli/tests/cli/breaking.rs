//! Connections that break while something is deployed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{Machine, Platform};

/// Where connections break.
#[derive(Clone, Copy)]
enum Break {
    /// After so many bytes of what is sent.
    Sending(u64),
    /// Before the first byte of the answer, which there is.
    Answering,
}

/// A way to the API on which the first connections break.
struct Way {
    api: String,
    connections: Arc<AtomicUsize>,
}

impl Way {
    async fn to(platform: &Platform, breaks: &'static [Break]) -> Self {
        let target = platform.api.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let fate = breaks.get(counted.fetch_add(1, Ordering::SeqCst)).copied();
                let far = TcpStream::connect(&target).await.unwrap();
                tokio::spawn(carry(near, far, fate));
            }
        });
        Self { api, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn carry(mut near: TcpStream, mut far: TcpStream, fate: Option<Break>) {
    let _ = match fate {
        None => tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop),
        Some(Break::Sending(bytes)) => tokio::io::copy(&mut (&mut near).take(bytes), &mut far).await.map(drop),
        Some(Break::Answering) => {
            let ((mut sent, _keep), (mut answer, mut on)) = (near.split(), far.split());
            tokio::select! {
                // Its first byte says that the work is done.
                _ = answer.read_u8() => {}
                _ = tokio::io::copy(&mut sent, &mut on) => {}
            }
            Ok(())
        }
    };
    let _ = (near.shutdown().await, far.shutdown().await);
}

/// At the same API by this way.
fn by(way: &Way, platform: &Platform) -> Machine {
    let mut ada = platform.ada_with_site();
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy"]).succeeds().out;
    ada.environment.insert("SVC_CLI_TOKEN", token.trim().to_owned());
    ada.environment.insert("SVC_CLI_API", way.api.clone());
    // More than what lies in buffers on the way; and nothing that can be compressed.
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    });
    ada.write("assets/noise", noise.take(2_000_000).collect::<Vec<u8>>());
    ada
}

async fn deploys_once(breaks: &'static [Break]) {
    let platform = Platform::start().await;
    let way = Way::to(&platform, breaks).await;
    let ada = by(&way, &platform);
    ada.svc(&["deploy", "--no-wait"]).succeeds();
    assert!(way.connections() > breaks.len(), "{} connections", way.connections());
    let mut looking = platform.ada();
    looking.environment.insert("SVC_CLI_API", platform.api.clone());
    let listed = looking.json(&["deployments", "--org", "ada", "--project", "site"]);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_is_sent_again() {
    deploys_once(&[Break::Sending(100_000), Break::Sending(1_000_000)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_is_asked_for_again_and_nothing_is_deployed_twice() {
    deploys_once(&[Break::Answering, Break::Answering]).await;
}
