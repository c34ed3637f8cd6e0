//! The grants of a project.

use kernel::{Resource, ResourceSet};

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_listed_per_project() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.db_project("shop").await, kit.db_project("blog").await);
    let granted = async |project| kit.resources.grants(project).await.unwrap();
    assert_eq!(granted(shop).await, ResourceSet::default());
    kit.db_grant(shop, "storage").await;
    kit.db_grant(shop, "ai").await;
    kit.db_grant(blog, "email").await;
    assert_eq!(granted(shop).await, ResourceSet { storage: true, ai: true, ..ResourceSet::default() });
    assert_eq!(granted(blog).await, ResourceSet { email: true, ..ResourceSet::default() });
    assert_eq!(granted(kit.store.clock_rng().id()).await, ResourceSet::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_resource_can_be_stored() {
    let kit = Kit::start().await;
    let project = kit.db_project("shop").await;
    for (number, resource) in Resource::ALL.iter().enumerate() {
        kit.db_grant(project, resource.as_str()).await;
        let granted = kit.resources.grants(project).await.unwrap();
        assert_eq!(granted.iter().collect::<Vec<_>>(), Resource::ALL[..=number]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_deleted_with_their_project() {
    let kit = Kit::start().await;
    let project = kit.db_project("shop").await;
    kit.db_grant(project, "storage").await;
    kit.db_execute("DELETE FROM projects.projects").await;
    assert_eq!(kit.db_number("SELECT count(*) FROM resources.grants").await, 0);
}
