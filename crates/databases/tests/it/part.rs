//! The part that the home node receives.

use kernel::Plan;

use crate::kit::Kit;
use crate::ports::Update;

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_the_logins_raises_the_revision() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let first = kit.part(at).await.unwrap();
    assert_eq!((first.revision, first.epoch, first.plan, first.suspended), (1, 1, Plan::Free, false));
    assert!(first.verifier.as_ref().unwrap().0.starts_with("SCRAM-SHA-256$4096:"));
    let password = kit.enable(at).await.password;
    assert!(!format!("{first:?}").contains("SCRAM") && !format!("{first:?}").contains(password.reveal()));
    let one = kit.token(at, None).await.unwrap();
    kit.advance(1);
    let two = kit.token(at, Some(60)).await.unwrap();
    let part = kit.part(at).await.unwrap();
    assert_eq!(part.revision, 3);
    // The login of the project keeps its verifier.
    assert_eq!(part.verifier, first.verifier);
    let logins: Vec<_> = part.tokens.iter().map(|login| (login.user, login.expires_at)).collect();
    assert_eq!(logins, [(one.user, None), (two.user, Some(kit.now().plus_seconds(60)))]);
    assert_eq!(kit.node.take_updates(), [Update::Published(at.project); 2]);
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    kit.db_place(at, "state = 'suspended'").await;
    let part = kit.part(at).await.unwrap();
    assert_eq!((part.revision, part.plan, part.suspended), (3, Plan::Pro, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_several_projects_do_not_mix() {
    let kit = Kit::start().await;
    let (shop, shop_id) = kit.database("shop").await;
    let (blog, blog_id) = kit.database("blog").await;
    let none = kit.db_project("none").await;
    let token = kit.token(shop, None).await.unwrap();
    let generation = kit.scheduled(blog).await;
    let projects = [shop.project, blog.project, none.project];
    let loaded = kit.values.load(&mut *kit.connection().await, &projects).await.unwrap();
    assert_eq!(loaded.len(), 2);
    let (shop, blog) = (&loaded[&shop.project], &loaded[&blog.project]);
    assert_eq!((shop.id, shop.tokens[0].user, &shop.source), (shop_id, token.user, &None));
    assert_eq!((blog.id, blog.tokens.len()), (blog_id, 0));
    assert_eq!(blog.source.as_ref().unwrap().key, generation.offsite_key);
}
