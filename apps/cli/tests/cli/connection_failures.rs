//! Deployments over connections that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Machine, Platform};

/// The point at which a connection is cut.
#[derive(Clone, Copy)]
enum Cut {
    /// After this many bytes of the request.
    Request(u64),
    /// After the server sends the response, but before the client receives any of it.
    Response,
}

/// A proxy in front of the API that cuts the first connections.
struct FaultyProxy {
    api: String,
    connections: Arc<AtomicUsize>,
}

impl FaultyProxy {
    async fn start(platform: &Platform, cuts: &'static [Cut]) -> Self {
        let target = platform.api.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = cuts.get(counter.fetch_add(1, Ordering::SeqCst)).copied();
                let server = TcpStream::connect(&target).await.unwrap();
                tokio::spawn(forward(client, server, cut));
            }
        });
        Self { api, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, cut: Option<Cut>) {
    let _ = match cut {
        None => tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop),
        Some(Cut::Request(bytes)) => tokio::io::copy(&mut (&mut client).take(bytes), &mut server).await.map(drop),
        Some(Cut::Response) => {
            let ((mut request, _keep), (mut response, mut upstream)) = (client.split(), server.split());
            tokio::select! {
                // The first byte of the response shows that the server has executed the request.
                _ = response.read_u8() => {}
                _ = tokio::io::copy(&mut request, &mut upstream) => {}
            }
            Ok(())
        }
    };
    let _ = (client.shutdown().await, server.shutdown().await);
}

/// Returns a machine that reaches the API through the proxy.
fn machine(proxy: &FaultyProxy, platform: &Platform) -> Machine {
    let mut ada = platform.ada_with_site();
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy"]).succeeds().out;
    ada.environment.insert("SVC_CLI_TOKEN", token.trim().to_owned());
    ada.environment.insert("SVC_CLI_API", proxy.api.clone());
    // Incompressible data that exceeds the socket buffers.
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    });
    ada.write("assets/noise", noise.take(2_000_000).collect::<Vec<u8>>());
    ada
}

async fn assert_deploys_once(cuts: &'static [Cut]) {
    let platform = Platform::start().await;
    let proxy = FaultyProxy::start(&platform, cuts).await;
    let ada = machine(&proxy, &platform);
    ada.svc(&["deploy", "--no-wait"]).succeeds();
    assert!(proxy.connections() > cuts.len(), "{} connections", proxy.connections());
    let mut observer = platform.ada();
    observer.environment.insert("SVC_CLI_API", platform.api.clone());
    let listed = observer.json(&["deployments", "--org", "ada", "--project", "site"]);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_upload_is_retried() {
    assert_deploys_once(&[Cut::Request(100_000), Cut::Request(1_000_000)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_is_retried_without_a_second_deployment_if_the_response_is_lost() {
    assert_deploys_once(&[Cut::Response, Cut::Response]).await;
}
