//! `kill -9` of the server, the node or both, in the middle of deploying.

use std::time::Duration;

use futures_util::future::join_all;
use kernel::Digest;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::convergence::node_process::Node;
use crate::kit::{client, site};
use crate::process::Process;

const OWNERS: usize = 4;
/// As many as the free plan has room for.
const PROJECTS: usize = 3;
/// Of each project: two hundred and some in all.
const DEPLOYS: usize = 17;

/// A project, and who deploys it.
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

    /// Deploys one page after the other, each until it is acknowledged; the versions that were.
    async fn run(&self, done: &watch::Sender<usize>) -> Vec<(i64, usize)> {
        let mut acknowledged = Vec::new();
        for number in 0..DEPLOYS {
            loop {
                let upload = client().post(self.path()).bearer_auth(&self.token).timeout(Duration::from_secs(10));
                let upload = upload.header("content-type", "application/gzip").body(site(&self.page(number)));
                if let Ok(answer) = upload.send().await
                    && answer.status() == 201
                    && let Ok(deployment) = answer.json::<Value>().await
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

    /// Version and digest of every deployment, oldest first, and the live one.
    async fn deployments(&self) -> (Vec<(i64, String)>, Value) {
        let path = format!("{}?limit=200", self.path());
        let answer = client().get(path).bearer_auth(&self.token).send().await.unwrap();
        let list: Value = answer.json().await.unwrap();
        let items = list["items"].as_array().unwrap();
        let live = items.iter().find(|it| it["live"] == true).unwrap().clone();
        let all = items.iter().rev();
        let all = all.map(|it| (it["version"].as_i64().unwrap(), it["digest"].as_str().unwrap().to_owned()));
        (all.collect(), live)
    }
}

/// Kills one or the other after each so many deploys, until there are no more.
async fn kill(server: &mut Process, node: &mut Node, mut done: watch::Receiver<usize>) {
    let total = OWNERS * PROJECTS * DEPLOYS;
    for (round, after) in (10..total).step_by(20).enumerate() {
        done.wait_for(|done| *done >= after).await.unwrap();
        match round % 3 {
            0 => server.killed_and_started_again().await,
            1 => {
                node.kill();
                node.start_again();
            }
            _ => {
                node.kill();
                server.killed_and_started_again().await;
                node.start_again();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_deploy_is_served_and_no_other() {
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
        // Without gaps, and each acknowledged version is what was uploaded for it.
        assert!(all.iter().map(|(version, _)| *version).eq(1..=i64::try_from(all.len()).unwrap()));
        let digest = |number: usize| Digest::of(&site(&deployer.page(number))).to_string();
        for (version, number) in &acknowledged {
            assert!(all.contains(&(*version, digest(*number))), "version {version}");
        }
        // Those whose answer was lost were uploaded again right away: nothing older comes after anything newer.
        let numbers: Vec<usize> = all
            .iter()
            .map(|(_, found)| (0..DEPLOYS).find(|number| digest(*number) == *found).expect("a page that was uploaded"))
            .collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!(live["digest"], digest(DEPLOYS - 1));

        let (host, last) = (format!("{}-{}.localhost", deployer.project, deployer.org), deployer.page(DEPLOYS - 1));
        for attempt in 0.. {
            let (page, (_, live)) = (node.page(&host, "/").await, deployer.deployments().await);
            if page.as_ref() == Some(&last) && live["status"] == "serving" {
                break;
            }
            assert!(attempt < 200, "{host} shows {page:?}; {live}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}
