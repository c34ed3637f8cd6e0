//! Keyset pagination: complete and in order with any limit.

use kernel::{OrgId, Page, Paging, Role, UserId};
use orgs::{Member, Org};

use crate::kit::{Kit, new_org, session_actor};

const LIMITS: [u16; 5] = [1, 7, 100, 125, 200];

/// Returns the members of all pages of this size.
async fn all_members(kit: &Kit, org: OrgId, limit: u16) -> Vec<UserId> {
    let (mut paging, mut seen) = (Paging { limit, after: None }, Vec::new());
    loop {
        let Page { items, next_cursor } = kit.orgs.members(org, &paging).await.unwrap();
        let full = items.len() == usize::from(limit);
        assert!(full || next_cursor.is_none(), "a page with {} of {limit} items has a next page", items.len());
        seen.extend(items.into_iter().map(|member: Member| member.user_id));
        assert!(seen.is_sorted_by(|a, b| a < b), "duplicate member, or out of order");
        let Some(cursor) = next_cursor else { return seen };
        paging = Paging::after(limit, &cursor).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_are_listed_in_order() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let (acme, other) = (kit.org(ada, "acme").await.id, kit.org(ada, "other").await.id);
    let mut users = kit.db_users("user", 499).await;
    kit.db_join(acme, &users, Role::Viewer).await;
    kit.db_join(other, &users[..30], Role::Member).await;
    users.push(ada);
    users.sort();
    for limit in LIMITS {
        assert!(all_members(&kit, acme, limit).await == users, "with {limit} on a page");
    }
    assert_eq!(all_members(&kit, other, 10).await.len(), 31);
    let nowhere = kit.store.clock_rng().id();
    assert_eq!(all_members(&kit, nowhere, 10).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_members_do_not_shift_the_next_page() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let users = kit.db_users("user", 30).await;
    kit.db_join(org, &users, Role::Viewer).await;
    let mut before: Vec<UserId> = [users, vec![ada]].concat();
    before.sort();
    let first = kit.orgs.members(org, &Paging { limit: 10, after: None }).await.unwrap();
    let cursor = first.next_cursor.unwrap();
    // Remove the member that the cursor names, one before it and one after it.
    let mut removed = vec![before[2], before[9], before[12]];
    removed.retain(|user| *user != ada);
    for user in &removed {
        kit.orgs.member_remove(&session_actor(ada), Role::Admin, org, *user).await.unwrap();
    }
    let rest = Paging::after(200, &cursor).unwrap();
    let second = kit.orgs.members(org, &rest).await.unwrap();
    let listed: Vec<UserId> = second.items.iter().map(|member| member.user_id).collect();
    before.drain(..10);
    before.retain(|user| !removed.contains(user));
    assert_eq!(listed, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn organizations_of_a_user_are_listed_in_order() {
    let kit = Kit::start().await;
    let (ada, bob) = (kit.db_user("ada").await, kit.db_user("bob").await);
    let mut mine = Vec::new();
    for n in 0..25 {
        let user = if n % 5 == 0 { bob } else { ada };
        let org = kit.orgs.create(&session_actor(user), user, new_org(&format!("org-{n}"))).await.unwrap();
        if user == ada {
            mine.push(org);
        }
    }
    mine.sort_by_key(|org| org.id);
    for limit in [1, 4, 5, 19, 20, 21] {
        let (mut paging, mut seen) = (Paging { limit, after: None }, Vec::<Org>::new());
        loop {
            let page = kit.orgs.list(ada, None, &paging).await.unwrap();
            seen.extend(page.items);
            assert!(seen.is_sorted_by(|a, b| a.id < b.id), "duplicate organization, or out of order");
            let Some(cursor) = page.next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert_eq!(seen, mine, "with {limit} on a page");
    }
    let whole = kit.orgs.memberships(ada, None).await.unwrap();
    assert!(whole.iter().map(|org| org.id).eq(mine.iter().map(|org| org.id)));
}
