//! The usage of a call (providers.md section 5, "Metering").

use protocol::AiUsage;
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

/// Returns the number of bytes of the output in the choices of a response or an event. Counts all texts in the messages
/// or deltas.
pub fn output_bytes(choices: &Value, message: &str) -> usize {
    let messages = choices.as_array().into_iter().flatten().filter_map(|choice| choice.get(message));
    messages
        .map(|message| match message {
            Value::Object(members) => {
                members.iter().filter(|(name, _)| *name != "role").map(|(_, it)| text_bytes(it)).sum()
            }
            _ => 0,
        })
        .sum()
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
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

    #[test]
    fn estimate_counts_bytes() {
        assert_eq!([0, 1, 4, 5].map(tokens_of), [0, 1, 1, 2]);
        let choices = json!([
            { "delta": { "role": "assistant", "content": "Grüße", "tool_calls": [{ "function": { "arguments": "{}" } }] } },
            { "delta": { "content": null } },
        ]);
        assert_eq!(output_bytes(&choices, "delta"), 7 + 2);
        assert_eq!(estimate(3, 1_000, 100).output_tokens, 100);
    }
}
