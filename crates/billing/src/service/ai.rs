//! AI models, and the usage of projects.

use kernel::{OrgId, Plan, ProjectId};

use super::{Billing, Result};
use crate::catalog::Catalog;
use crate::model::{AiLimits, AiModels, AiStatus};
use crate::repository::{AccountRepository as _, CallRepository as _, SPEND_PERIOD_SECONDS};

impl Billing {
    /// Returns the catalog.
    #[must_use]
    pub fn ai_models(&self) -> AiModels {
        AiModels { models: self.catalog().models().cloned().collect() }
    }

    /// Returns the limits and the usage of a project. `granted` states whether AI is enabled for the project.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`](crate::BillingError::Store).
    pub async fn ai_status(&self, org: OrgId, plan: Plan, project: ProjectId, granted: bool) -> Result<AiStatus> {
        let since = self.store.clock_rng().now().plus_seconds(-SPEND_PERIOD_SECONDS);
        let mut connection = self.store.connection().await?;
        let balance_micro_cents = connection.account_balance(org).await?;
        let (usage24h, spent_micro_cents_24h) = connection.usage_since(project, since).await?;
        let limits = self.limits.for_plan(plan);
        Ok(AiStatus {
            granted,
            limits: AiLimits {
                requests_per_minute: limits.ai_requests_per_minute,
                spend_per_day_micro_cents: limits.ai_spend_per_day_micro_cents,
                max_input_tokens: limits.ai_max_input_tokens,
                max_output_tokens: limits.ai_max_output_tokens,
            },
            balance_micro_cents,
            usage24h,
            spent_micro_cents_24h,
        })
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.config.catalog
    }
}
