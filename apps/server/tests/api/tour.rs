//! Runs the tour of the README in a shell against a server and a node.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::convergence::node_process::{Node, program, workerd};
use crate::process::Process;

/// The number of shell blocks at the end of the tour that deploy worker code, which requires `workerd`.
const BLOCKS_WITH_CODE: usize = 2;

/// The shell blocks of the tour.
fn tour(with_code: bool) -> String {
    let readme = include_str!("../../../../README.md");
    let tour = readme.split("## The tour").nth(1).expect("the README has no tour").split("\n## ").next().unwrap();
    let blocks = tour.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut blocks: Vec<&str> = blocks.collect();
    if !with_code {
        blocks.truncate(blocks.len() - BLOCKS_WITH_CODE);
    }
    blocks.join("\n")
}

/// Creates the parts of a built checkout that the tour uses.
fn checkout(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::create_dir_all(folder.join("target/debug")).unwrap();
    symlink(root.join("examples"), folder.join("examples")).unwrap();
    symlink(program("svc"), folder.join("target/debug/svc")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readme_tour_works() {
    let workerd = workerd();
    let server = Process::start().await;
    let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
    let folder = std::env::temp_dir().join(format!("svc-tour-{}", port(&server.base)));
    let mut settings = vec![("SVC_NODE_STORAGE", format!("file://{}/objects", folder.display()))];
    settings.extend(workerd.clone().map(|it| ("SVC_NODE_WORKERD", it)));
    let node = Node::start(&server, &settings).await;
    let edge = format!(":{}", port(&node.edge));
    let script = tour(workerd.is_some()).replace("http://127.0.0.1:8080", &server.base).replace(":8088", &edge);
    assert!(script.contains(&server.base), "the tour does not use the API");
    // Replace `sleep` by a wait for the effect of the access policy.
    let script = format!(
        "status() {{ curl -s -o /dev/null -w '%{{http_code}}' http://site-acme.localhost{edge}/ -H \"$1\"; }}\n\
         sleep() {{\n\
         until [ $(status 'X: y') = 401 ] && [ $(status \"Svc-Access-Bypass: $KEY\") = 200 ]; do command sleep 0.1; done\n\
         }}\n{script}"
    );
    checkout(&folder);
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &script]).current_dir(&folder);
    shell.env("XDG_CONFIG_HOME", folder.join("config")).env("SVC_CLI_API", &server.base).env("NO_PROXY", "*");
    let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{out}\n{err}");
    let seen: Vec<&str> = out.lines().filter(|line| line.starts_with("<h1>") || *line == "401").collect();
    let (hello, again) = ("<h1>Hello</h1>", "<h1>Hello again</h1>");
    let code = workerd.map(|_| ["<h1>Hello, Ada</h1>", r#"<h1><a href="/">Guest book</a></h1>"#]);
    let expected: Vec<&str> =
        [hello, again, hello, "401", hello].into_iter().chain(code.into_iter().flatten()).collect();
    assert_eq!(seen, expected, "{out}\n{err}");
    for event in ["deployment.rollback", "access.bypass.new", "project.create"] {
        assert!(out.contains(event), "{event} is not in {out}\n{err}");
    }
}
