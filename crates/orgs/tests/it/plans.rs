//! The plan of an organization.

use kernel::{OrgId, Plan};
use serde_json::{Value, json};
use store::Connection;

use crate::kit::Kit;

impl Kit {
    async fn set_plan(&self, org: OrgId, plan: Plan) {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| self.orgs.set_plan(tx, org, plan).await)
            .await
            .unwrap();
    }

    async fn plan(&self) -> Value {
        let select = "SELECT plan, floor(extract(epoch FROM pro_retention_until))::bigint AS until FROM orgs.orgs";
        self.db_rows(select).await.remove(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_of_the_pro_plan_applies_for_30_days_after_its_end() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    assert_eq!(kit.plan().await, json!({ "plan": "free", "until": null }));
    kit.set_plan(org, Plan::Pro).await;
    assert_eq!(kit.plan().await, json!({ "plan": "pro", "until": null }));
    let until = kit.now().plus_seconds(30 * 24 * 3600);
    kit.set_plan(org, Plan::Free).await;
    assert_eq!(kit.plan().await, json!({ "plan": "free", "until": until.unix_seconds() }));
    assert_eq!(Plan::Free.for_retention(Some(until), until.plus_seconds(-1)), Plan::Pro);
    assert_eq!(Plan::Free.for_retention(Some(until), until), Plan::Free);
    assert_eq!(Plan::Free.for_retention(None, until), Plan::Free);
    // If the organization buys the plan again, the next end has its own 30 days.
    kit.set_plan(org, Plan::Pro).await;
    assert_eq!(kit.plan().await, json!({ "plan": "pro", "until": null }));
}
