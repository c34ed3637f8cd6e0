//! The usage of a call (providers.md section 5, "Metering").

use std::borrow::Cow;
use std::fmt;

use protocol::AiUsage;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The number of bytes per token in an estimate.
const BYTES_PER_TOKEN: usize = 4;

/// Returns the estimated number of tokens of a text with this many bytes in UTF-8, rounded up.
pub fn tokens_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// Returns the usage that the upstream reports, or `None` if it is not plausible. A usage is plausible if both numbers
/// are integers of at most the model's context, the input is not 0, and the output is not 0 if the response has output.
pub fn reported(usage: &Value, context_tokens: u32, output_bytes: usize) -> Option<AiUsage> {
    let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).and_then(|tokens| u32::try_from(tokens).ok());
    let (input_tokens, output_tokens) = (tokens("prompt_tokens")?, tokens("completion_tokens")?);
    let is_plausible = (1..=context_tokens).contains(&input_tokens)
        && output_tokens <= context_tokens
        && (output_tokens > 0 || output_bytes == 0);
    is_plausible.then_some(AiUsage { input_tokens, output_tokens, estimated: false })
}

/// Returns an estimate for a call whose upstream did not report a plausible usage.
pub fn estimate(input_tokens: u32, output_bytes: usize, context_tokens: u32) -> AiUsage {
    AiUsage { input_tokens, output_tokens: tokens_of(output_bytes).min(context_tokens), estimated: true }
}

/// The part of a response, or of an event of a stream, that determines its usage. It contains the lengths of the texts,
/// not the texts, so it needs little memory.
#[derive(Deserialize)]
pub struct Metered {
    choices: Vec<Choice>,
    pub usage: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    /// In a response that is not a stream.
    message: Option<Message>,
    /// In an event of a stream.
    delta: Option<Message>,
}

/// The members of a message or a delta that the model writes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    content: TextBytes,
    refusal: TextBytes,
    reasoning: TextBytes,
    reasoning_content: TextBytes,
    reasoning_details: Option<Vec<ReasoningDetail>>,
    function_call: Option<FunctionCall>,
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReasoningDetail {
    text: TextBytes,
    summary: TextBytes,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Option<FunctionCall>,
    custom: Option<FunctionCall>,
}

/// The call of a function, or of a custom tool, whose argument is `input`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FunctionCall {
    name: TextBytes,
    arguments: TextBytes,
    input: TextBytes,
}

/// The number of bytes in UTF-8 of a text, or of all texts in a list of parts.
#[derive(Default, Clone, Copy)]
struct TextBytes(usize);

impl Metered {
    /// Returns whether there are no choices.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// Returns the number of bytes of the output in a response that is not a stream.
    pub fn message_bytes(&self) -> usize {
        self.choices.iter().filter_map(|choice| choice.message.as_ref()).map(Message::bytes).sum()
    }

    /// Returns the number of bytes of the output in an event of a stream.
    pub fn delta_bytes(&self) -> usize {
        self.choices.iter().filter_map(|choice| choice.delta.as_ref()).map(Message::bytes).sum()
    }
}

impl Message {
    fn bytes(&self) -> usize {
        // Upstreams send the same reasoning under several names.
        let details = self.reasoning_details.iter().flatten().map(|detail| detail.text.0 + detail.summary.0);
        let reasoning: usize = match self.reasoning.0.max(self.reasoning_content.0) {
            0 => details.sum(),
            plain => plain,
        };
        let tools = self.tool_calls.iter().flatten().flat_map(|call| [&call.function, &call.custom]);
        let calls = tools.chain([&self.function_call]).flatten();
        let calls: usize = calls.map(|call| call.name.0 + call.arguments.0 + call.input.0).sum();
        self.content.0 + self.refusal.0 + reasoning + calls
    }
}

impl<'de> Deserialize<'de> for TextBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = TextBytes;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text or a list of parts")
    }

    fn visit_str<E>(self, text: &str) -> Result<TextBytes, E> {
        Ok(TextBytes(text.len()))
    }

    fn visit_unit<E>(self) -> Result<TextBytes, E> {
        Ok(TextBytes(0))
    }

    fn visit_bool<E>(self, _: bool) -> Result<TextBytes, E> {
        Ok(TextBytes(0))
    }

    fn visit_i64<E>(self, _: i64) -> Result<TextBytes, E> {
        Ok(TextBytes(0))
    }

    fn visit_u64<E>(self, _: u64) -> Result<TextBytes, E> {
        Ok(TextBytes(0))
    }

    fn visit_f64<E>(self, _: f64) -> Result<TextBytes, E> {
        Ok(TextBytes(0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TextBytes, A::Error> {
        let mut bytes = 0;
        while let Some(item) = items.next_element::<TextBytes>()? {
            bytes += item.0;
        }
        Ok(TextBytes(bytes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<TextBytes, A::Error> {
        let mut bytes = 0;
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            // The type of a part is not text of the model.
            if name == "type" {
                members.next_value::<IgnoredAny>()?;
            } else {
                bytes += members.next_value::<TextBytes>()?.0;
            }
        }
        Ok(TextBytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn implausible_usage_is_not_accepted() {
        let usage = |input: Value, output: Value| json!({ "prompt_tokens": input, "completion_tokens": output });
        let accepted = |usage: &Value, bytes| reported(usage, 100, bytes).map(|it| (it.input_tokens, it.output_tokens));
        assert_eq!(accepted(&usage(json!(100), json!(7)), 9), Some((100, 7)));
        assert_eq!(accepted(&usage(json!(1), json!(0)), 0), Some((1, 0)));
        for (input, output) in [
            (json!(-1), json!(1)),
            (json!(0), json!(1)),
            (json!(101), json!(1)),
            (json!(1), json!(101)),
            (json!(1), json!(0)),
            (json!(1.0), json!(1)),
            (json!("1"), json!(1)),
            (json!(null), json!(1)),
            (json!(5_000_000_000_u64), json!(1)),
        ] {
            assert_eq!(accepted(&usage(input.clone(), output.clone()), 9), None, "{input} {output}");
        }
        assert_eq!(accepted(&json!({ "prompt_tokens": 1 }), 9), None);
        assert_eq!(accepted(&json!([]), 9), None);
    }

    fn metered(choices: Value) -> Metered {
        serde_json::from_value(json!({ "id": "not counted", "choices": choices })).unwrap()
    }

    #[test]
    fn estimate_counts_bytes() {
        assert_eq!([0, 1, 4, 5].map(tokens_of), [0, 1, 1, 2]);
        let choices = json!([
            { "delta": { "role": "assistant", "content": "Grüße", "tool_calls": [{ "function": { "arguments": "{}" } }] } },
            { "delta": { "content": null } },
        ]);
        assert_eq!(metered(choices).delta_bytes(), 7 + 2);
        assert_eq!(estimate(3, 1_000, 100).output_tokens, 100);
    }

    #[test]
    fn only_texts_of_the_model_count_and_reasoning_counts_once() {
        let bytes = |message: Value| metered(json!([{ "message": message, "finish_reason": "stop" }])).message_bytes();
        let details = json!([{ "type": "reasoning.text", "text": "why", "signature": "c2lnbmF0dXJl", "format": "x-v1" },
            { "type": "reasoning.summary", "summary": "so" }, { "type": "reasoning.encrypted", "data": "eA==" }]);
        for (message, expected) in [
            (json!({ "role": "assistant", "content": "four", "annotations": [{ "url": "https://a.example" }] }), 4),
            (
                json!({ "content": "four", "reasoning": "why", "reasoning_content": "why", "reasoning_details": details }),
                7,
            ),
            (json!({ "content": null, "reasoning": null, "reasoning_details": details }), 5),
            (json!({ "content": [{ "type": "text", "text": "four" }, { "type": "thinking", "thinking": "why" }] }), 7),
            (json!({ "refusal": "no", "function_call": { "name": "f", "arguments": "{}" } }), 5),
            (
                json!({ "content": "", "tool_calls": [
                    { "index": 0, "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{}" } },
                    { "id": "call_2", "type": "custom", "custom": { "name": "run", "input": "ls" } },
                ] }),
                8,
            ),
            (json!({ "content": 7, "tool_calls": null, "audio": { "data": "bm8=" } }), 0),
        ] {
            assert_eq!(bytes(message.clone()), expected, "{message}");
        }
        // Some upstreams repeat the whole message in each event.
        let both = metered(json!([{ "delta": { "content": "a" }, "message": { "content": "The text so far: a" } }]));
        assert_eq!(both.delta_bytes(), 1);
        assert!(metered(json!([])).is_empty());
        serde_json::from_value::<Metered>(json!({ "error": {} })).err().unwrap();
    }
}
