//! Deployments and imports over connections that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::reverse_proxy::{self, Action};
use crate::support::{CommandResult, Machine, Platform};

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

/// Imports a zone over a connection that loses the response. The client repeats the import, whose precondition the first
/// attempt has made false. `comparison` is the action for the comparison of the zone with the file.
async fn import_with_a_lost_response(comparison: fn() -> Action) -> CommandResult {
    let platform = Platform::with(&[("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned())]).await;
    let imports = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&imports);
    let proxy = reverse_proxy::start_with(&platform, move |request| {
        if !request.starts_with("PUT ") {
            return Action::Forward;
        }
        // The preview, the import, its retry, and the comparison.
        match counter.fetch_add(1, Ordering::SeqCst) {
            1 => Action::LoseResponse,
            3 => comparison(),
            _ => Action::Forward,
        }
    });
    let ada = Machine::new(&proxy.await);
    ada.svc(&["login", "--dev", "ada"]).succeeds();
    ada.svc(&["zones", "create", "example.org", "--org", "ada"]).succeeds();
    ada.write("zone", "www 300 IN A 192.0.2.1\n");
    let result = ada.svc(&["zones", "import", "example.org", "zone", "--yes", "--org", "ada", "--json"]);
    assert_eq!(imports.load(Ordering::SeqCst), 4, "{result:?}");
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn import_of_a_zone_succeeds_if_the_response_is_lost() {
    let result = import_with_a_lost_response(|| Action::Forward).await.succeeds();
    assert_eq!(result.json()["rrsetCount"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn import_of_a_zone_reports_the_precondition_if_the_comparison_fails() {
    let result = import_with_a_lost_response(|| Action::Respond(400)).await.fails(1);
    assert_eq!(result.json()["code"], "precondition_failed");
}
