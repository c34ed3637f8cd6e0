//! Swaps of worker versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{HOST, Rig};
use crate::control_plane::State;
use crate::timeout::TIMEOUT;

fn says(text: &str) -> String {
    format!("export default {{ fetch() {{ return new Response('{text}'); }} }};")
}

#[tokio::test(flavor = "multi_thread")]
async fn version_that_fails_to_start_is_reported_and_the_previous_one_is_served() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(&says("first")).await;
    for (code, why) in [
        ("export default { fetch( { }", "SyntaxError"),
        ("import './lib/absent.js'; export default {};", "No such module"),
        ("throw new Error('at the start');", "at the start"),
        ("for (;;) {}", "10 seconds"),
    ] {
        rig.deploy(code);
        let failed = rig.observes("app", State::Failed).await;
        let message = failed.message.unwrap();
        assert!(message.contains(why) && message.len() < 600 && !message.contains("/proc"), "{message}");
        assert_eq!(rig.node.visitor.get(HOST, "/").await.body, "first");
    }
    rig.core.deploy_with(
        r#"{"compatibilityDate": "2199-01-01", "main": "worker/main.mjs"}"#,
        "app",
        &[("worker/main.mjs", says("dated").as_bytes())],
    );
    let failed = rig.observes("app", State::Failed).await;
    assert!(failed.message.unwrap().contains("compatibility date"));
    assert_eq!((failed.version, rig.node.visitor.get(HOST, "/").await.body.as_str()), (6, "first"));

    let broken = "throw new Error('again');";
    rig.deploy(broken);
    assert_eq!(rig.observes("app", State::Failed).await.version, 7);
    rig.deploy(broken);
    assert_eq!(rig.observes("app", State::Failed).await.version, 8);

    rig.serves(&says("second")).await;
    assert_eq!(rig.node.visitor.get(HOST, "/").await.body, "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn swaps_lose_no_request_and_long_responses_complete() {
    const LONG: &str = r#"
      export default { fetch(request) {
        if (!request.url.endsWith("/long")) return new Response("long");
        let sent = 0;
        return new Response(new ReadableStream({ async pull(controller) {
          await scheduler.wait(100);
          controller.enqueue(new TextEncoder().encode("old "));
          if (++sent === 40) controller.close();
        } }));
      } };"#;
    let Some(rig) = Rig::start().await else { return };
    rig.serves(&says("0")).await;
    let rig = Arc::new(rig);
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let visitors = [(); 4].map(|()| {
        let (rig, stop, asked) = (Arc::clone(&rig), Arc::clone(&stop), Arc::clone(&asked));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let seen = rig.node.visitor.get(HOST, "/").await;
                assert_eq!(seen.status, 200, "{seen:?}");
                asked.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let began = Instant::now();
    for version in 1..=3 {
        rig.serves(&says(&version.to_string())).await;
        rig.node.visitor.sees(HOST, "/", 200, &version.to_string()).await;
    }
    rig.serves(LONG).await;
    rig.node.visitor.sees(HOST, "/", 200, "long").await;
    let long = rig.node.visitor.request(reqwest::Method::GET, HOST, "/long").send().await.unwrap();
    let mut long = long.bytes_stream();
    assert_eq!(long.next().await.unwrap().unwrap(), "old ");
    // One more swap would stop the process of this request.
    for version in 4..=5 {
        rig.serves(&says(&version.to_string())).await;
        rig.node.visitor.sees(HOST, "/", 200, &version.to_string()).await;
    }
    println!("6 swaps in {:?} under {} requests", began.elapsed(), asked.load(Ordering::Relaxed));
    let mut rest = String::new();
    while let Some(chunk) = long.next().await {
        rest += std::str::from_utf8(&chunk.unwrap()).unwrap();
    }
    assert_eq!(rest, "old ".repeat(39));
    stop.store(true, Ordering::Relaxed);
    for visitor in visitors {
        visitor.await.unwrap();
    }
    assert!(asked.load(Ordering::Relaxed) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_requests_share_one_start() {
    // On a busy machine, the requests of the burst can be far apart.
    let Some(rig) = Rig::start_with(|workers| workers.idle = Duration::from_secs(5)).await else { return };
    // Each process generates its own id, so the id identifies the start.
    let code = "let own; export default { fetch() { own ??= crypto.randomUUID(); return new Response(own); } };";
    rig.serves(code).await;
    let first = rig.node.visitor.get(HOST, "/").await.body;
    let run = rig.dir.path().join("run");
    // After the idle process exits, only the socket of the bindings is left.
    crate::running::until("exit of the idle worker", || std::fs::read_dir(&run).unwrap().count() == 1).await;
    let visitor = &rig.node.visitor;
    let burst = futures_util::future::join_all((0..50).map(|_| visitor.get(HOST, "/"))).await;
    let own = &burst[0].body;
    assert!(own != &first && burst.iter().all(|seen| seen.status == 200 && seen.body == *own), "{burst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_version_completes_its_work_after_a_response() {
    let rig = Rig::start_with(|workers| {
        workers.egress.allow = "127.0.0.1/32".parse().unwrap();
        // The deploy may take long on a busy machine.
        workers.min_idle = TIMEOUT;
    });
    let Some(rig) = rig.await else { return };
    let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Most of the work is done after the swap, and takes longer than an old version without a request is kept anyway.
    let code = r#"
      export default { fetch({ url }, env, context) {
        const work = async () => {
          await fetch("http://ORIGIN/");
          await scheduler.wait(3000);
          await fetch("http://ORIGIN/");
        };
        if (url.endsWith("/work")) context.waitUntil(work());
        return new Response("old");
      } };"#;
    rig.serves(&code.replace("ORIGIN", &origin.local_addr().unwrap().to_string())).await;
    rig.node.visitor.sees(HOST, "/", 200, "old").await;
    assert_eq!(rig.node.visitor.get(HOST, "/work").await.body, "old");
    rig.serves(&says("new")).await;
    rig.node.visitor.sees(HOST, "/", 200, "new").await;
    let (mut begun, _) = timeout(TIMEOUT, origin.accept()).await.unwrap().unwrap();
    assert!(begun.read(&mut [0; 4096]).await.unwrap() > 0);
    begun.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await.unwrap();
    drop(begun);
    let ended = timeout(TIMEOUT, origin.accept()).await;
    assert!(ended.is_ok(), "the old version was stopped during its work");
}
