//! The usage of a call (providers.md section 5, "Metering").

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use protocol::AiUsage;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The number of bytes per token in an estimate.
const BYTES_PER_TOKEN: usize = 4;

/// Returns the estimated number of tokens of a text with this many bytes in UTF-8, rounded up.
pub fn tokens_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// Returns the usage that the upstream reports, or `None` if it is not plausible. A usage is plausible if both numbers
/// are integers of at most the model's context, the input is not 0, and the output is not 0 if the response has output.
pub fn reported(usage: Usage, context_tokens: u32, output_bytes: usize) -> Option<AiUsage> {
    let (input_tokens, output_tokens) = (usage.input.0?, usage.output.0?);
    let is_plausible = (1..=context_tokens).contains(&input_tokens)
        && output_tokens <= context_tokens
        && (output_tokens > 0 || output_bytes == 0);
    is_plausible.then_some(AiUsage { input_tokens, output_tokens, estimated: false })
}

/// Returns an estimate for a call whose upstream did not report a plausible usage.
pub fn estimate(input_tokens: u32, output_bytes: usize, context_tokens: u32) -> AiUsage {
    AiUsage { input_tokens, output_tokens: tokens_of(output_bytes).min(context_tokens), estimated: true }
}

/// The part of a response, or of an event of a stream, that determines its usage. It contains the total lengths of the
/// texts, but no texts and no lists. Parsing needs memory for one text, because serde_json copies a text with escapes.
///
/// Only the choices must have the expected shape. The upstream charges for the call in any case, so other members of
/// unexpected shapes and repeated members do not fail the call.
pub struct Metered {
    /// The sums of all choices; `None` if there are no choices.
    choices: Option<Choice>,
    pub usage: Option<Usage>,
}

/// The usage that the upstream reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    input: Tokens,
    output: Tokens,
}

/// A number of tokens; `None` for any other value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tokens(Option<u32>);

#[derive(Default)]
struct Choice {
    /// The bytes of the message, in a response that is not a stream.
    message: usize,
    /// The bytes of the delta, in an event of a stream.
    delta: usize,
}

/// The numbers of bytes in a message or a delta that the model writes.
#[derive(Default)]
struct Message {
    texts: usize,
    /// Upstreams send the same reasoning under several names.
    reasoning: usize,
    reasoning_details: usize,
}

/// The texts of a value whose bytes in UTF-8 count. In an object, these are the texts of some of its members.
#[derive(Clone, Copy)]
enum Texts {
    /// A text, or the texts of its parts. Signatures and images of parts are not text of the model.
    Parts,
    ReasoningDetails,
    /// The calls of tools, or of a function. The argument of a custom tool is `input`.
    Calls,
    /// All texts: some upstreams send arguments as an object, with any names.
    All,
}

impl Metered {
    /// Returns whether there are no choices.
    pub fn is_empty(&self) -> bool {
        self.choices.is_none()
    }

    /// Returns the number of bytes of the output in a response that is not a stream.
    pub fn message_bytes(&self) -> usize {
        self.choices.as_ref().map_or(0, |choices| choices.message)
    }

    /// Returns the number of bytes of the output in an event of a stream.
    pub fn delta_bytes(&self) -> usize {
        self.choices.as_ref().map_or(0, |choices| choices.delta)
    }
}

impl Message {
    fn bytes(&self) -> usize {
        let reasoning = if self.reasoning == 0 { self.reasoning_details } else { self.reasoning };
        self.texts + reasoning
    }
}

impl Texts {
    /// Returns the texts that count in a member of an object.
    fn of_member(self, name: &str) -> Option<Self> {
        match (self, name) {
            (Self::Parts, "text" | "refusal" | "thinking") | (Self::ReasoningDetails, "text" | "summary") => {
                Some(Self::Parts)
            }
            (Self::Calls, "function" | "custom") => Some(Self::Calls),
            (Self::Calls, "name" | "arguments" | "input") | (Self::All, _) => Some(Self::All),
            (Self::Parts | Self::ReasoningDetails | Self::Calls, _) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Metered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MeteredVisitor)
    }
}

struct MeteredVisitor;

impl<'de> Visitor<'de> for MeteredVisitor {
    type Value = Metered;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a completion")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Metered, A::Error> {
        let (mut choices, mut usage) = (None, None);
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match &*name {
                "choices" => choices = Some(members.next_value_seed(SumOfChoices)?),
                "usage" => usage = members.next_value()?,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Metered { choices: choices.ok_or_else(|| A::Error::missing_field("choices"))?, usage })
    }
}

/// Adds up the choices.
struct SumOfChoices;

impl<'de> DeserializeSeed<'de> for SumOfChoices {
    type Value = Option<Choice>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SumOfChoices {
    type Value = Option<Choice>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("choices")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut sum: Option<Choice> = None;
        while let Some(Choice { message, delta }) = items.next_element_seed(MembersOf::<Choice>::new())? {
            let sum = sum.get_or_insert_default();
            sum.message += message;
            sum.delta += delta;
        }
        Ok(sum)
    }
}

/// An object that is read member by member. Any other value counts as an empty object.
trait Members: Default {
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error>;

    /// Returns the value of a number instead of an object.
    fn of_number(_: u64) -> Self {
        Self::default()
    }
}

impl Members for Usage {
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "prompt_tokens" => self.input = members.next_value_seed(MembersOf::<Tokens>::new())?,
            "completion_tokens" => self.output = members.next_value_seed(MembersOf::<Tokens>::new())?,
            _ => {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl Members for Tokens {
    fn read<'de, A: MapAccess<'de>>(&mut self, _: &str, members: &mut A) -> Result<(), A::Error> {
        members.next_value::<IgnoredAny>()?;
        Ok(())
    }

    fn of_number(number: u64) -> Self {
        Self(u32::try_from(number).ok())
    }
}

impl Members for Choice {
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "message" => self.message += members.next_value_seed(MembersOf::<Message>::new())?.bytes(),
            "delta" => self.delta += members.next_value_seed(MembersOf::<Message>::new())?.bytes(),
            _ => {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl Members for Message {
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "content" | "refusal" => self.texts += members.next_value_seed(Texts::Parts)?,
            "function_call" | "tool_calls" => self.texts += members.next_value_seed(Texts::Calls)?,
            "reasoning" | "reasoning_content" => {
                self.reasoning = self.reasoning.max(members.next_value_seed(Texts::Parts)?);
            }
            "reasoning_details" => self.reasoning_details += members.next_value_seed(Texts::ReasoningDetails)?,
            _ => {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Usage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MembersOf::<Self>::new().deserialize(deserializer)
    }
}

/// Reads [`Members`].
struct MembersOf<T>(PhantomData<T>);

impl<T> MembersOf<T> {
    const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: Members> DeserializeSeed<'de> for MembersOf<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Implements the methods of a visitor for values that contain no text and no members.
macro_rules! visit_others {
    ($($method:ident: $other:ty),*) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        $(fn $method<E>(self, _: $other) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        })*
    };
}

impl<'de, T: Members> Visitor<'de> for MembersOf<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<T, A::Error> {
        let mut read = T::default();
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            read.read(&name, &mut members)?;
        }
        Ok(read)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<T, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::of_number(number))
    }

    visit_others!(visit_str: &str, visit_bool: bool, visit_i64: i64, visit_f64: f64);
}

impl<'de> DeserializeSeed<'de> for Texts {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<usize, E> {
        Ok(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut bytes = 0;
        while let Some(item) = items.next_element_seed(self)? {
            bytes += item;
        }
        Ok(bytes)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<usize, A::Error> {
        let mut bytes = 0;
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match self.of_member(&name) {
                Some(texts) => bytes += members.next_value_seed(texts)?,
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(bytes)
    }

    visit_others!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ai::content::check_messages;

    #[test]
    fn implausible_usage_is_not_accepted() {
        let usage = |input: Value, output: Value| json!({ "prompt_tokens": input, "completion_tokens": output });
        let accepted = |usage: &Value, bytes| {
            let usage = serde_json::from_value(usage.clone()).unwrap();
            reported(usage, 100, bytes).map(|it| (it.input_tokens, it.output_tokens))
        };
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
            (json!([1]), json!({ "tokens": 1 })),
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
            (
                json!({ "content": [
                    { "type": "text", "text": "four" },
                    { "type": "thinking", "thinking": "why", "signature": "c2lnbmF0dXJl" },
                    { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } },
                ] }),
                7,
            ),
            (json!({ "refusal": "no", "function_call": { "name": "f", "arguments": "{}" } }), 5),
            (
                json!({ "content": "", "tool_calls": [
                    { "index": 0, "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{}" } },
                    { "id": "call_2", "type": "custom", "custom": { "name": "run", "input": "ls" } },
                ] }),
                8,
            ),
        ] {
            assert_eq!(bytes(message.clone()), expected, "{message}");
            // Code sends the message back.
            let mut sent = message.clone();
            sent["role"] = json!("assistant");
            assert_eq!(check_messages(&json!([sent])), Ok(()), "{message}");
        }
        // Some upstreams repeat the whole message in each event.
        let both = metered(json!([{ "delta": { "content": "a" }, "message": { "content": "The text so far: a" } }]));
        assert_eq!(both.delta_bytes(), 1);
        assert!(metered(json!([])).is_empty());
    }

    #[test]
    fn only_choices_must_have_the_expected_shape() {
        let bytes = |message: Value| metered(json!([{ "message": message }])).message_bytes();
        for (message, expected) in [
            (json!({ "content": 7, "tool_calls": null, "audio": { "data": "bm8=" } }), 0),
            (json!({ "content": "four", "tool_calls": {}, "function_call": [] }), 4),
            (json!({ "content": { "type": "text", "text": "four" }, "tool_calls": 1 }), 4),
            (json!({ "reasoning_details": { "text": "why", "format": "x" }, "function_call": "f" }), 4),
            (
                json!({ "reasoning_details": "why", "tool_calls": [null, { "function": { "arguments": { "x": "y" } } }] }),
                4,
            ),
            (json!("text"), 0),
            (json!([1]), 0),
            (json!(null), 0),
        ] {
            assert_eq!(bytes(message.clone()), expected, "{message}");
        }
        assert_eq!(metered(json!([null, "x", { "message": { "content": "four" } }])).message_bytes(), 4);
        // JSON allows repeated names.
        let repeated =
            r#"{"choices":[{"delta":{"content":"a","content":"b"},"index":0,"index":0}],"usage":null,"usage":{}}"#;
        let repeated: Metered = serde_json::from_str(repeated).unwrap();
        assert_eq!((repeated.delta_bytes(), repeated.usage), (2, Some(Usage::default())));
        let escaped: Metered = serde_json::from_str(r#"{"choices":[{"message":{"content":"\n\u00fc"}}]}"#).unwrap();
        assert_eq!(escaped.message_bytes(), 3);
        for other in
            [json!({ "error": {} }), json!({ "choices": null }), json!({ "choices": {} }), json!([]), json!("x")]
        {
            assert!(serde_json::from_value::<Metered>(other.clone()).is_err(), "{other}");
        }
    }
}
