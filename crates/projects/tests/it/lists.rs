//! Keyset pages: whole, in order, whatever the limit.

use kernel::{Page, Paging, Plan, ProjectId};

use crate::kit::{Kit, new};

#[tokio::test(flavor = "multi_thread")]
async fn projects_are_listed_once_each_and_in_order() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.db_org("acme", Plan::Pro).await, kit.db_org("other", Plan::Pro).await);
    let mut mine = Vec::new();
    for n in 0..40 {
        mine.push(kit.projects.create(&kit.actor, &acme, new(&format!("shop-{n}"))).await.unwrap());
        if n % 4 == 0 {
            kit.projects.create(&kit.actor, &other, new(&format!("shop-{n}"))).await.unwrap();
        }
    }
    // A second name makes no second line of a project.
    let id = mine[0].id.as_uuid();
    kit.db_execute(&format!(
        "INSERT INTO projects.hostnames VALUES ('example.org', '{id}', 'custom', 'active', NULL, NULL, now(), now())"
    ))
    .await;
    mine.sort_by_key(|project| project.id);
    for limit in [1, 7, 20, 39, 40, 41, 200] {
        let (mut paging, mut seen) = (Paging::<ProjectId> { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.projects.list(&acme, None, &paging).await.unwrap();
            seen.extend(items);
            assert!(seen.is_sorted_by(|a, b| a.id < b.id), "a project again, or out of order");
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert_eq!(seen, mine, "with {limit} on a page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_are_listed_newest_first_while_more_arrive() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    for n in 1..=25 {
        kit.deploy(&org, project, &format!("page {n}")).await.unwrap();
    }
    for limit in [1, 6, 24, 25, 26] {
        let newest = kit.projects.deployments(project, &Paging { limit: 1, after: None }).await.unwrap();
        let newest = newest.items[0].version;
        let (mut paging, mut seen) = (Paging::<i32> { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.projects.deployments(project, &paging).await.unwrap();
            seen.extend(items.iter().map(|deployment| deployment.version));
            assert!(seen.is_sorted_by(|a, b| a > b), "a deployment again, or out of order");
            let Some(cursor) = next_cursor else { break };
            if paging.after.is_none() {
                kit.deploy(&org, project, "one more").await.unwrap();
            }
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert!(seen.iter().copied().eq((1..=newest).rev()), "with {limit} on a page: {seen:?}");
    }
}
