//! The request of worker code.

use serde_json::{Map, Value, json};

use super::content::{IMAGE_TOKENS, check_messages, check_tools, image_urls};
use super::usage::tokens_of;
use super::{AiError, Result};

/// The fields that limit the output.
const OUTPUT_LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];
/// The fields that are passed on. They change what the model writes, and not what a token costs or which model answers.
pub(super) const FIELDS: [&str; 32] = [
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "model",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "safety_identifier",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
];
/// The expected output of a call that neither its request nor its plan limits, in tokens. The control plane admits calls
/// with the same number.
const DEFAULT_OUTPUT_TOKENS: u32 = 4_096;

/// A request of a chat completion.
pub struct ChatRequest {
    object: Map<String, Value>,
    model: String,
    is_stream: bool,
}

impl ChatRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// Returns [`AiError::InvalidRequest`].
    pub fn parse(body: &[u8]) -> Result<Self> {
        let invalid = |message: &str| AiError::InvalidRequest(message.to_owned());
        let Ok(Value::Object(mut object)) = serde_json::from_slice(body) else {
            return Err(invalid("The body must be a JSON object."));
        };
        let model = object.get("model").and_then(Value::as_str).map(str::to_owned);
        let model = model.filter(|model| model.len() <= 200 && !model.contains('\0'));
        let model =
            model.ok_or_else(|| invalid("model must be a string of at most 200 characters, without U+0000."))?;
        check_messages(object.get("messages").unwrap_or(&Value::Null))?;
        let is_stream = match object.get("stream") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(is_stream)) => *is_stream,
            Some(_) => return Err(invalid("stream must be a boolean.")),
        };
        if !object.get("stream_options").is_none_or(|it| it.is_object() || it.is_null()) {
            return Err(invalid("stream_options must be an object."));
        }
        for name in OUTPUT_LIMITS {
            let is_valid = |limit: &Value| limit.is_null() || limit.as_u64().is_some_and(|limit| limit > 0);
            if !object.get(name).is_none_or(is_valid) {
                return Err(invalid(&format!("{name} must be a positive integer.")));
            }
        }
        // These values are the defaults, which some clients send.
        object.retain(|name, value| match (name.as_str(), &*value) {
            (name, Value::Null) => FIELDS.contains(&name),
            ("n", value) => *value != json!(1),
            ("store", value) => *value != json!(false),
            ("service_tier", value) => *value != json!("auto") && *value != json!("default"),
            ("modalities", value) => *value != json!(["text"]),
            _ => true,
        });
        if let Some(name) = object.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            let name: String = name.chars().take(100).collect();
            return Err(AiError::InvalidRequest(match name.as_str() {
                "n" => "n must be 1. Make a call for each completion.".to_owned(),
                "store" => "store must be false.".to_owned(),
                "service_tier" => r#"service_tier must be "auto" or "default"."#.to_owned(),
                "modalities" => r#"modalities must be ["text"]."#.to_owned(),
                _ => format!("{name} is not supported."),
            }));
        }
        check_tools(&object)?;
        Ok(Self { object, model, is_stream })
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    pub const fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Returns whether the worker code requested the event with the usage.
    pub fn includes_usage(&self) -> bool {
        let options = self.object.get("stream_options");
        options.and_then(|options| options.get("include_usage")) == Some(&Value::Bool(true))
    }

    /// Returns the estimated number of input tokens, from the length of the messages and the tools as JSON. The URL of an
    /// image may contain the image, so it does not count: each image counts as the same number of tokens.
    pub fn input_tokens(&self) -> u32 {
        let parts = ["messages", "tools", "functions", "response_format"].iter().filter_map(|it| self.object.get(*it));
        let bytes: usize = parts.map(|part| part.to_string().len()).sum();
        let images = self.object.get("messages").into_iter().flat_map(image_urls);
        let (images, urls) = images.fold((0, 0), |(count, bytes), url| (count + 1, bytes + url.to_string().len()));
        let images = u32::try_from(images * IMAGE_TOKENS).unwrap_or(u32::MAX);
        tokens_of(bytes.saturating_sub(urls)).saturating_add(images)
    }

    /// Returns the output limit of the request in tokens, or `None` if it has none. The upstream chooses between two
    /// limits, so the greater one is returned.
    pub fn max_output_tokens(&self) -> Option<u32> {
        let limits = OUTPUT_LIMITS.iter().filter_map(|name| self.object.get(*name).and_then(Value::as_u64));
        limits.max().map(|limit| u32::try_from(limit).unwrap_or(u32::MAX))
    }

    /// Returns the expected number of output tokens with this limit of the plan; 0 means no limit.
    pub fn expected_output_tokens(&self, plan: u32) -> u32 {
        match (self.max_output_tokens(), plan) {
            (None, 0) => DEFAULT_OUTPUT_TOKENS,
            (Some(limit), 0) | (None, limit) => limit,
            (Some(limit), plan) => limit.min(plan),
        }
    }

    /// Returns the body for the upstream. A stream always reports its usage.
    pub fn into_upstream(self, model: &str, max_output_tokens: u32) -> Vec<u8> {
        let mut object = self.object;
        object.insert("model".to_owned(), model.into());
        if self.is_stream {
            let options = object.entry("stream_options").or_insert_with(|| json!({}));
            if let Some(options) = options.as_object_mut() {
                options.insert("include_usage".to_owned(), true.into());
            } else {
                *options = json!({ "include_usage": true });
            }
        }
        if max_output_tokens > 0 {
            let given = OUTPUT_LIMITS.iter().filter(|name| object.get(**name).is_some_and(|it| !it.is_null()));
            let given: Vec<&str> = given.copied().collect();
            for name in if given.is_empty() { vec!["max_tokens"] } else { given } {
                let limit = object.get(name).and_then(Value::as_u64).unwrap_or(u64::MAX);
                object.insert(name.to_owned(), limit.min(max_output_tokens.into()).into());
            }
        }
        Value::Object(object).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(body: &Value, max: u32) -> Value {
        let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
        serde_json::from_slice(&request.into_upstream("up", max)).unwrap()
    }

    #[test]
    fn stream_always_reports_its_usage() {
        let plain = json!({ "model": "m", "messages": [], "stream": true });
        let with = |options: Value| json!({ "model": "m", "messages": [], "stream": true, "stream_options": options });
        for (body, includes) in [
            (plain.clone(), false),
            (with(Value::Null), false),
            (with(json!({ "include_usage": false })), false),
            (with(json!({ "include_usage": true })), true),
        ] {
            let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
            assert_eq!(request.includes_usage(), includes, "{body}");
            assert_eq!(rewritten(&body, 0)["stream_options"], json!({ "include_usage": true }), "{body}");
        }
        let other = with(json!({ "include_obfuscation": false }));
        assert_eq!(rewritten(&other, 0)["stream_options"]["include_obfuscation"], false);
        let whole = json!({ "model": "m", "messages": [] });
        assert_eq!(rewritten(&whole, 0), json!({ "model": "up", "messages": [] }));
    }

    #[test]
    fn output_is_limited_by_the_plan() {
        let with = |name: &str, value: Value| {
            let mut body = json!({ "model": "m", "messages": [] });
            body[name] = value;
            body
        };
        assert_eq!(rewritten(&with("seed", json!(1)), 9)["max_tokens"], 9);
        assert_eq!(rewritten(&with("max_tokens", json!(5)), 9)["max_tokens"], 5);
        let limited = rewritten(&with("max_completion_tokens", json!(50)), 9);
        assert_eq!((&limited["max_completion_tokens"], limited.get("max_tokens")), (&json!(9), None));
        assert!(rewritten(&with("seed", json!(1)), 0).get("max_tokens").is_none());
    }

    #[test]
    fn output_limit_of_the_request_is_found() {
        let limit = |fields: Value| {
            let mut body = json!({ "model": "m", "messages": [] });
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            ChatRequest::parse(body.to_string().as_bytes()).unwrap().max_output_tokens()
        };
        assert_eq!(limit(json!({})), None);
        assert_eq!(limit(json!({ "max_tokens": null })), None);
        assert_eq!(limit(json!({ "max_tokens": 5, "max_completion_tokens": null })), Some(5));
        assert_eq!(limit(json!({ "max_tokens": 5, "max_completion_tokens": 7 })), Some(7));
        assert_eq!(limit(json!({ "max_tokens": 5_000_000_000_u64 })), Some(u32::MAX));
    }

    #[test]
    fn expected_output_is_the_limit_of_the_request_or_of_the_plan() {
        let expected = |limit: Value, plan| {
            let body = json!({ "model": "m", "messages": [], "max_tokens": limit });
            ChatRequest::parse(body.to_string().as_bytes()).unwrap().expected_output_tokens(plan)
        };
        assert_eq!([expected(Value::Null, 0), expected(json!(7), 0)], [4_096, 7]);
        assert_eq!([expected(Value::Null, 50), expected(json!(7), 50), expected(json!(70), 50)], [50, 7, 50]);
    }

    #[test]
    fn image_counts_as_the_same_number_of_tokens_whatever_its_length() {
        let tokens = |urls: &[&str]| {
            let image = |url: &&str| json!({ "type": "image_url", "image_url": { "url": url } });
            let images: Vec<Value> = urls.iter().map(image).collect();
            let body = json!({ "model": "m", "messages": [{ "role": "user", "content": images }] });
            ChatRequest::parse(body.to_string().as_bytes()).unwrap().input_tokens()
        };
        let long = format!("data:image/png;base64,{}", "A".repeat(600_000));
        let (none, one) = (tokens(&[]), tokens(&[&long]));
        assert!((1_600..1_650).contains(&(one - none)), "{one}");
        assert_eq!(tokens(&["https://a.example/cat.png"]), one);
        assert!(tokens(&[&long, &long]) >= 3_200);
    }

    #[test]
    fn defaults_are_not_passed_on() {
        let body = json!({ "model": "m", "messages": [], "n": 1, "store": false, "service_tier": "auto",
            "modalities": ["text"], "audio": null, "models": null, "temperature": null, "tools": [{ "type": "function" }] });
        let passed = json!({ "model": "up", "messages": [], "temperature": null, "tools": [{ "type": "function" }] });
        assert_eq!(rewritten(&body, 0), passed);
    }

    #[test]
    fn malformed_requests_are_named() {
        for (body, named) in [
            ("[]", "object"),
            ("{", "object"),
            (r#"{"messages":[]}"#, "model"),
            (r#"{"model":1,"messages":[]}"#, "model"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":{}}"#, "messages"),
            (r#"{"model":"m","messages":[],"stream":"yes"}"#, "stream"),
            (r#"{"model":"m","messages":[],"stream_options":1}"#, "stream_options"),
            (r#"{"model":"m","messages":[],"max_tokens":0}"#, "max_tokens must be a positive integer"),
            (r#"{"model":"m","messages":[],"max_tokens":100000.0}"#, "max_tokens must be a positive integer"),
            (
                r#"{"model":"m","messages":[],"max_tokens":5,"max_completion_tokens":"100000"}"#,
                "max_completion_tokens must",
            ),
            (r#"{"model":"m","messages":[],"n":2}"#, "n must be 1"),
            (r#"{"model":"m","messages":[],"n":1.0}"#, "n must be 1"),
            (r#"{"model":"m","messages":[],"service_tier":"priority"}"#, "service_tier"),
            (r#"{"model":"m","messages":[],"modalities":["text","audio"]}"#, "modalities"),
            (r#"{"model":"m","messages":[],"store":true}"#, "store"),
            (r#"{"model":"m","messages":[],"models":["other"]}"#, "models is not supported"),
            (r#"{"model":"m","messages":[],"plugins":[{"id":"web"}]}"#, "plugins"),
            (r#"{"model":"m","messages":[],"web_search_options":{}}"#, "web_search_options"),
            (r#"{"model":"m","messages":[],"provider":{"order":["x"]}}"#, "provider"),
            (r#"{"model":"m","messages":[],"tools":[{"type":"function"},{"type":"web_search"}]}"#, "tool"),
            (r#"{"model":"m","messages":[],"tools":[{}]}"#, "tool"),
            (r#"{"model":"m","messages":[{"role":"user","content":[{"type":"file"}]}]}"#, "part of content"),
        ] {
            let error = ChatRequest::parse(body.as_bytes()).err().unwrap();
            assert!(error.to_string().contains(named), "{body}: {error}");
        }
    }
}
