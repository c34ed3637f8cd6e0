//! A secret on the whole platform, with a real node and worker and with logs at trace level: its value appears only in
//! the expected places.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use reqwest::Client;
use serde_json::Value;

use crate::node::{Node, workerd};
use crate::support::Platform;

/// The worker uses the value, and shows only its length.
const WORKER: &str = "export default { fetch: (_, env) => new Response(String(env.API_KEY?.length ?? 0)) };";

#[tokio::test(flavor = "multi_thread")]
async fn value_of_a_secret_is_only_in_the_worker() {
    let Some(workerd) = workerd() else { return };
    let platform = Platform::with(&[("SVC_LOG", "trace".to_owned())]).await;
    let settings = [("SVC_NODE_WORKERD", workerd.display().to_string()), ("SVC_NODE_LOG", "trace".to_owned())];
    let node = Node::start(&platform, &settings);
    let machine = platform.ada_with_site();
    machine.write("worker/index.js", WORKER);
    let mut shown = vec![machine.svc(&["deploy", "--no-wait"]).succeeds().out];
    let canary = format!("canary-{}", uuid());
    shown.push(machine.svc_with_stdin(&canary, &["secrets", "set", "API_KEY"]).succeeds().out);
    // The request has a path other than /, which is an asset.
    let length = canary.len().to_string();
    node.wait_for("site-ada.localhost", "/length", |text| text == length).await;

    // Send invalid requests, whose errors describe the problem.
    let http = Client::builder().no_proxy().build().unwrap();
    let token = sign_in(&http, &platform.api).await;
    let path = format!("{}/v1/orgs/ada/projects/site/secrets", platform.api);
    for (path, body) in [
        (path.clone(), format!(r#"{{"secrets":{{"API_KEY":["{canary}"]}}}}"#)),
        (path.clone(), format!(r#"{{"secrets":{{"API_KEY":"{canary}\u0000"}}}}"#)),
        (path.clone(), format!(r#"{{"secrets":{{"API_KEY":"{canary}","SVC_X":"{canary}"}}}}"#)),
        (path.clone(), format!(r#"{{"secrets":{{"API_KEY":"{canary}"}},"other":1}}"#)),
        (format!("{path}/API_KEY"), format!(r#"{{"value":["{canary}"]}}"#)),
        (format!("{path}/API_KEY"), format!(r#"{{"value":"{canary}""#)),
        (format!("{path}/api-key"), format!(r#"{{"value":"{canary}"}}"#)),
    ] {
        let request = http.put(path).bearer_auth(&token).header("content-type", "application/json").body(body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_client_error(), "{}", response.status());
        shown.push(response.text().await.unwrap());
    }
    shown.push(machine.svc(&["secrets", "list"]).succeeds().out);
    shown.push(machine.svc(&["audit", "--json"]).out);
    for url in [format!("http://{}/metrics", platform.internal), format!("http://{}/metrics", node.metrics)] {
        shown.push(http.get(url).send().await.unwrap().text().await.unwrap());
    }
    for text in &shown {
        assert!(!text.contains(&canary), "shown: {text}");
    }

    let mut searched = 0;
    for folder in [platform.folder.path(), node.folder.path()] {
        search(folder, canary.as_bytes(), &mut searched);
    }
    let log = fs::read_to_string(platform.folder.path().join("node.log")).unwrap();
    assert!(searched > 5 && log.contains("TRACE"), "{searched} files");
    for process in processes() {
        for file in ["cmdline", "environ"] {
            let content = fs::read(process.join(file)).unwrap_or_default();
            assert!(!contains(&content, canary.as_bytes()), "{}/{file}", process.display());
        }
    }
    let tables = "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables \
        WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
    for table in platform.database.rows(tables).await {
        let table = table["name"].as_str().unwrap();
        let found = format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%{canary}%' OR t::text LIKE '%{hex}%'");
        assert_eq!(platform.database.number(&found).await, 0, "{table}");
    }
}

async fn sign_in(http: &Client, api: &str) -> String {
    let login = http.post(format!("{api}/v1/auth/dev/login")).header("content-type", "application/json");
    let session = login.body(r#"{"subject":"ada"}"#).send().await.unwrap().text().await.unwrap();
    serde_json::from_str::<Value>(&session).unwrap()["token"].as_str().unwrap().to_owned()
}

fn uuid() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().to_owned()
}

/// Fails if a file below the folder contains the text. The node may delete files during the search.
fn search(folder: &Path, text: &[u8], searched: &mut usize) {
    for entry in unless_deleted(fs::read_dir(folder)).into_iter().flatten() {
        let path = entry.unwrap().path();
        let Some(metadata) = unless_deleted(fs::symlink_metadata(&path)) else { continue };
        if metadata.is_dir() {
            search(&path, text, searched);
        } else if metadata.is_file() {
            let Some(content) = unless_deleted(fs::read(&path)) else { continue };
            *searched += 1;
            assert!(!contains(&content, text), "{}", path.display());
        }
    }
}

fn unless_deleted<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        result => Some(result.unwrap()),
    }
}

fn contains(content: &[u8], text: &[u8]) -> bool {
    content.windows(text.len()).any(|window| window == text)
}

/// Returns the processes of this machine that are readable.
fn processes() -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.file_name().unwrap().to_str().unwrap().parse::<u32>().is_ok()).collect()
}
