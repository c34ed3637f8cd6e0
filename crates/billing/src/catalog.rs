//! The catalog of AI models, which is a file of the deployment (contract section 8, providers.md section 5).

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::model::{AiModel, Lane};

/// The highest price, in microcents per million tokens: 10,000 USD per million tokens.
const MAX_PRICE: i64 = 1_000_000_000_000;
/// The longest name of a model.
const MAX_NAME: usize = 200;

/// The AI models that an installation offers. The catalog has been validated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// The models, in the order of the file.
    entries: Vec<CatalogEntry>,
    by_id: BTreeMap<String, usize>,
}

/// A model of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogEntry {
    pub model: AiModel,
    /// The name of the model at the upstream.
    pub upstream_model: String,
}

/// An error in the catalog. The text names the entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCatalog(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    models: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    id: String,
    lane: Lane,
    list_price: Option<bool>,
    provider: Option<String>,
    input_micro_cents_per_m_tok: i64,
    output_micro_cents_per_m_tok: i64,
    context_tokens: u32,
    upstream_model: Option<String>,
}

impl Catalog {
    /// Parses the content of a catalog file.
    ///
    /// # Errors
    /// Returns [`InvalidCatalog`] for a malformed catalog, including duplicate ids and a frontier model without its
    /// provider.
    pub fn parse(text: &str) -> Result<Self, InvalidCatalog> {
        let File { models } = serde_json::from_str(text).map_err(|error| InvalidCatalog(error.to_string()))?;
        let mut catalog = Self::default();
        for (index, value) in models.into_iter().enumerate() {
            let id = value.get("id").and_then(serde_json::Value::as_str).map(|id| format!(" ({id:?})"));
            let name = format!("models[{index}]{}", id.unwrap_or_default());
            let invalid = |reason: &dyn fmt::Display| InvalidCatalog(format!("{name}: {reason}"));
            let entry: Entry = serde_json::from_value(value).map_err(|error| invalid(&error))?;
            let entry = entry.check().map_err(|reason| invalid(&reason))?;
            if catalog.by_id.insert(entry.model.id.clone(), index).is_some() {
                return Err(invalid(&"another model has the same id"));
            }
            catalog.entries.push(entry);
        }
        Ok(catalog)
    }

    /// Returns the model with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&CatalogEntry> {
        self.entries.get(*self.by_id.get(id)?)
    }

    /// Returns the models, in the order of the file.
    pub fn models(&self) -> impl Iterator<Item = &AiModel> {
        self.entries.iter().map(|entry| &entry.model)
    }
}

impl Entry {
    fn check(self) -> Result<CatalogEntry, &'static str> {
        let Self { id, lane, list_price, provider, upstream_model, context_tokens, .. } = self;
        let prices = [self.input_micro_cents_per_m_tok, self.output_micro_cents_per_m_tok];
        let is_name = |name: &str| (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        let upstream_model = upstream_model.unwrap_or_else(|| id.clone());
        if !is_name(&id) || !is_name(&upstream_model) || !provider.as_deref().is_none_or(is_name) {
            return Err("id, provider and upstreamModel must be 1 to 200 visible ASCII characters");
        }
        match (lane, provider.as_deref(), list_price) {
            (Lane::Frontier, None, _) => return Err("a frontier model must have a provider"),
            (Lane::Frontier, Some(provider), Some(true)) => {
                if !id.strip_prefix(provider).is_some_and(|rest| rest.starts_with('/')) {
                    return Err("the id of a frontier model must start with its provider and a slash");
                }
            }
            (Lane::Frontier, Some(_), _) => return Err("a frontier model must have listPrice: true"),
            (Lane::Value, Some(_), _) => return Err("a value model has no provider"),
            (Lane::Value, None, Some(_)) => return Err("a value model has no listPrice"),
            (Lane::Value, None, None) => {}
        }
        if !prices.iter().all(|price| (0..=MAX_PRICE).contains(price)) {
            return Err("a price must be from 0 to 1,000,000,000,000 microcents per million tokens");
        }
        if context_tokens == 0 {
            return Err("contextTokens must be at least 1");
        }
        let [input_micro_cents_per_m_tok, output_micro_cents_per_m_tok] = prices;
        let model = AiModel {
            id,
            lane,
            list_price,
            provider,
            input_micro_cents_per_m_tok,
            output_micro_cents_per_m_tok,
            context_tokens,
        };
        Ok(CatalogEntry { model, upstream_model })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(id: &str) -> Value {
        json!({ "id": id, "lane": "value", "inputMicroCentsPerMTok": 1, "outputMicroCentsPerMTok": 2, "contextTokens": 8 })
    }

    fn frontier() -> Value {
        let mut entry = value("lab/large");
        for (key, value) in [("lane", json!("frontier")), ("provider", json!("lab")), ("listPrice", json!(true))] {
            entry[key] = value;
        }
        entry
    }

    fn parse(models: Value) -> Result<Catalog, String> {
        Catalog::parse(&json!({ "models": models }).to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn upstream_model_is_the_id_by_default_and_not_shown() {
        let mut renamed = value("small");
        renamed["upstreamModel"] = json!("small-2026-11");
        let catalog = parse(json!([frontier(), renamed])).unwrap();
        assert_eq!(catalog.get("lab/large").unwrap().upstream_model, "lab/large");
        assert_eq!(catalog.get("small").unwrap().upstream_model, "small-2026-11");
        assert!(catalog.get("small-2026-11").is_none());
        assert_eq!(json!(catalog.models().collect::<Vec<_>>()), json!([frontier(), value("small")]));
    }

    #[test]
    fn malformed_entries_are_named() {
        let with = |base: Value, key: &str, value: Value| {
            let mut entry = base;
            entry[key] = value;
            json!([self::value("first"), entry])
        };
        let mut anonymous = frontier();
        anonymous.as_object_mut().unwrap().remove("provider");
        for (models, reason) in [
            (json!([value("a"), value("a")]), "another model has the same id"),
            (json!([value("a"), anonymous]), "must have a provider"),
            (with(frontier(), "listPrice", json!(false)), "must have listPrice"),
            (with(frontier(), "provider", json!("other")), "must start with its provider"),
            (with(value("b"), "provider", json!("lab")), "has no provider"),
            (with(value("b"), "listPrice", json!(true)), "has no listPrice"),
            (with(value("b"), "inputMicroCentsPerMTok", json!(0.5)), "invalid type: floating point"),
            (with(value("b"), "outputMicroCentsPerMTok", json!(-1)), "a price must be"),
            (with(value("b"), "contextTokens", json!(0)), "contextTokens must be"),
            (with(value("b"), "lane", json!("cheap")), "must be one of"),
            (with(value("b"), "id", json!("a b")), "visible ASCII"),
            (with(value("b"), "price", json!(1)), "unknown field"),
        ] {
            let error = parse(models).unwrap_err();
            assert!(error.starts_with("models[1]") && error.contains(reason), "{error}");
        }
        assert!(Catalog::parse("[]").is_err() && Catalog::parse("{}").is_err());
        assert_eq!(Catalog::parse(r#"{"models": []}"#).unwrap(), Catalog::default());
    }
}
