//! Keyset pagination: complete and in order for any page size.

use kernel::{Page, Paging, Plan, ProjectId};

use crate::kit::{Kit, new_project};

#[tokio::test(flavor = "multi_thread")]
async fn projects_are_listed_once_and_in_order() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.db_org("acme", Plan::Pro).await, kit.db_org("other", Plan::Pro).await);
    let mut expected = Vec::new();
    for n in 0..40 {
        expected.push(kit.projects.create(&kit.actor, &acme, new_project(&format!("shop-{n}"))).await.unwrap());
        if n % 4 == 0 {
            kit.projects.create(&kit.actor, &other, new_project(&format!("shop-{n}"))).await.unwrap();
        }
    }
    // A second hostname does not duplicate the project.
    let id = expected[0].id.as_uuid();
    kit.db_execute(&format!(
        "INSERT INTO projects.hostnames VALUES ('example.org', '{id}', 'custom', 'active', NULL, NULL, now(), now())"
    ))
    .await;
    expected.sort_by_key(|project| project.id);
    for limit in [1, 7, 20, 39, 40, 41, 200] {
        let (mut paging, mut listed) = (Paging::<ProjectId> { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.projects.list(&acme, None, &paging).await.unwrap();
            listed.extend(items);
            assert!(listed.is_sorted_by(|a, b| a.id < b.id), "a duplicate or unordered project");
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert_eq!(listed, expected, "with {limit} per page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_pages_are_stable_while_new_ones_arrive() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    for n in 1..=25 {
        kit.deploy(&org, project, &format!("page {n}")).await.unwrap();
    }
    for limit in [1, 6, 24, 25, 26] {
        let newest = kit.projects.deployments(project, &Paging { limit: 1, after: None }).await.unwrap();
        let newest = newest.items[0].version;
        let (mut paging, mut listed) = (Paging::<i32> { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.projects.deployments(project, &paging).await.unwrap();
            listed.extend(items.iter().map(|deployment| deployment.version));
            assert!(listed.is_sorted_by(|a, b| a > b), "a duplicate or unordered deployment");
            let Some(cursor) = next_cursor else { break };
            if paging.after.is_none() {
                kit.deploy(&org, project, "one more").await.unwrap();
            }
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert!(listed.iter().copied().eq((1..=newest).rev()), "with {limit} per page: {listed:?}");
    }
}
