//! SIGKILL of the server, the node or both during deployments.

use std::time::Duration;

use futures_util::future::join_all;
use kernel::Digest;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::convergence::node_process::Node;
use crate::process::Process;
use crate::support::{client, eventually, site};

const OWNERS: usize = 4;
/// The project limit of the free plan.
const PROJECTS: usize = 3;
/// The number of deployments of each project: 204 in total.
const DEPLOYS: usize = 17;

/// A client that deploys one project repeatedly.
struct Deployer {
    base: String,
    token: String,
    org: String,
    project: String,
}

impl Deployer {
    fn page(&self, number: usize) -> String {
        format!("{} {number}", self.project)
    }

    fn path(&self) -> String {
        format!("{}/v1/orgs/{}/projects/{}/deployments", self.base, self.org, self.project)
    }

    /// Deploys the pages in order, and retries each deployment until it is acknowledged. Returns the acknowledged
    /// versions with their pages.
    async fn run(&self, done: &watch::Sender<usize>) -> Vec<(i64, usize)> {
        let mut acknowledged = Vec::new();
        for number in 0..DEPLOYS {
            loop {
                let upload = client().post(self.path()).bearer_auth(&self.token).timeout(Duration::from_secs(10));
                let upload = upload.header("content-type", "application/gzip").body(site(&self.page(number)));
                if let Ok(response) = upload.send().await
                    && response.status() == 201
                    && let Ok(deployment) = response.json::<Value>().await
                {
                    acknowledged.push((deployment["version"].as_i64().unwrap(), number));
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
            done.send_modify(|done| *done += 1);
        }
        acknowledged
    }

    /// Returns version and digest of every deployment, oldest first, and the live deployment.
    async fn deployments(&self) -> (Vec<(i64, String)>, Value) {
        let path = format!("{}?limit=200", self.path());
        let response = client().get(path).bearer_auth(&self.token).send().await.unwrap();
        let list: Value = response.json().await.unwrap();
        let items = list["items"].as_array().unwrap();
        let live = items.iter().find(|it| it["live"] == true).unwrap().clone();
        let all = items.iter().rev();
        let all = all.map(|it| (it["version"].as_i64().unwrap(), it["digest"].as_str().unwrap().to_owned()));
        (all.collect(), live)
    }
}

/// Kills the server, the node or both after every 20 deployments.
async fn kill(server: &mut Process, node: &mut Node, mut done: watch::Receiver<usize>) {
    let total = OWNERS * PROJECTS * DEPLOYS;
    for (round, after) in (10..total).step_by(20).enumerate() {
        done.wait_for(|done| *done >= after).await.unwrap();
        match round % 3 {
            0 => server.kill_and_restart().await,
            1 => {
                node.kill();
                node.restart();
            }
            _ => {
                node.kill();
                server.kill_and_restart().await;
                node.restart();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_deployments_survive_crashes_and_the_last_is_served() {
    let mut server = Process::start().await;
    let mut node = Node::start(&server, &[]).await;
    let mut deployers = Vec::new();
    for owner in 0..OWNERS {
        let (base, org) = (server.base.clone(), format!("owner{owner}"));
        let session = server.json("", "POST", "/v1/auth/dev/login", Some(json!({ "subject": org }))).await;
        let token = session["token"].as_str().unwrap().to_owned();
        for number in 0..PROJECTS {
            let project = format!("site{number}");
            let path = format!("/v1/orgs/{org}/projects");
            server.json(&token, "POST", &path, Some(json!({ "name": project }))).await;
            deployers.push(Deployer { base: base.clone(), token: token.clone(), org: org.clone(), project });
        }
    }
    let done = watch::Sender::new(0);
    let deploying = join_all(deployers.iter().map(|deployer| deployer.run(&done)));
    let (acknowledged, ()) = tokio::join!(deploying, kill(&mut server, &mut node, done.subscribe()));

    for (deployer, acknowledged) in deployers.iter().zip(acknowledged) {
        let (all, live) = deployer.deployments().await;
        // Versions have no gaps, and each acknowledged version has the uploaded bundle.
        assert!(all.iter().map(|(version, _)| *version).eq(1..=i64::try_from(all.len()).unwrap()));
        let digest = |number: usize| Digest::of(&site(&deployer.page(number))).to_string();
        for (version, number) in &acknowledged {
            assert!(all.contains(&(*version, digest(*number))), "version {version}");
        }
        // A retry after a lost response can deploy a page twice, but never an older page.
        let numbers: Vec<usize> = all
            .iter()
            .map(|(_, found)| {
                (0..DEPLOYS).find(|number| digest(*number) == *found).expect("the digest is not of an uploaded page")
            })
            .collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!(live["digest"], digest(DEPLOYS - 1));

        let (host, last) = (format!("{}-{}.localhost", deployer.project, deployer.org), deployer.page(DEPLOYS - 1));
        eventually(&format!("{host} serves {last}"), async || {
            let (page, (_, live)) = (node.page(&host, "/").await, deployer.deployments().await);
            (page.as_ref() == Some(&last) && live["status"] == "serving").then_some(())
        })
        .await;
    }
}
