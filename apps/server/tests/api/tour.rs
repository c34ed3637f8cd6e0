//! The README's tour, as printed, run by a shell.

use std::process::Command;

use crate::kit::App;
use crate::nodes::Edge;

/// The shell blocks of the README's tour.
fn tour() -> String {
    let readme = include_str!("../../../../README.md");
    let tour = readme.split("## The tour").nth(1).expect("a tour").split("\n## ").next().unwrap();
    let blocks = tour.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_works_as_printed() {
    let app = App::start().await;
    let edge = Edge::start(&app).await;
    let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
    let script =
        tour().replace("http://127.0.0.1:8080", &app.base).replace(":8088", &format!(":{}", port(&edge.address)));
    assert!(script.contains(&app.base), "the tour talks to the API");
    let folder = std::env::temp_dir().join(format!("svc-tour-{}", port(&app.base)));
    std::fs::create_dir_all(&folder).unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &script]).current_dir(&folder);
    let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{out}\n{err}");
    let pages: Vec<&str> = out.lines().filter(|line| line.starts_with("<h1>")).collect();
    assert_eq!(pages, ["<h1>Hello</h1>", "<h1>Hello again</h1>", "<h1>Hello</h1>"], "{out}\n{err}");
}
