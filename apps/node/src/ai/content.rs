//! The messages and tools of a request.
//!
//! The prices of the catalog are those of text, so only content is passed on whose tokens have these prices: texts and
//! images. Audio, files and marks such as `cache_control` cost more.

use serde_json::{Map, Value};

use super::{AiError, Result};

/// The estimated number of input tokens of an image. Common models use at most 1,100 to 2,500 tokens for a large image,
/// whatever its length in bytes.
pub const IMAGE_TOKENS: usize = 1_600;

/// The members of a message. Code sends the messages of the model back, so the list contains those that common upstreams
/// add to them.
const MESSAGE_FIELDS: [&str; 16] = [
    "annotations",
    "content",
    "function_call",
    "name",
    "parsed",
    "partial",
    "prefix",
    "provider_specific_fields",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "role",
    "thinking_blocks",
    "tool_call_id",
    "tool_calls",
];
const TOOL_CALL_FIELDS: [&str; 7] =
    ["custom", "extra_content", "function", "id", "index", "provider_specific_fields", "type"];
const IMAGE_FIELDS: [&str; 2] = ["detail", "url"];
/// The beginnings of the URL of an image, in lowercase.
const IMAGE_URLS: [&str; 3] = ["https://", "http://", "data:image/"];
const THINKING_FIELDS: [&str; 4] = ["closed", "signature", "thinking", "type"];
/// The tools that the code itself executes. A tool of the upstream, such as a search of the web, has its own price.
const TOOL_TYPES: [&str; 2] = ["function", "custom"];
const FUNCTION_FIELDS: [&str; 5] = ["description", "format", "name", "parameters", "strict"];

/// Checks the messages of a request.
///
/// # Errors
/// Returns [`AiError::InvalidRequest`], which names the unsupported part.
pub fn check_messages(messages: &Value) -> Result<()> {
    for message in messages.as_array().ok_or_else(|| invalid("messages must be an array."))? {
        let message = object(message, "A message")?;
        check_fields(message, &MESSAGE_FIELDS, "messages[]")?;
        for call in array(message.get("tool_calls"), "tool_calls")? {
            check_fields(object(call, "A tool call")?, &TOOL_CALL_FIELDS, "messages[].tool_calls[]")?;
        }
        match message.get("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) => {
                let is_of_model = message.get("role").and_then(Value::as_str) == Some("assistant");
                parts.iter().try_for_each(|part| check_part(part, is_of_model))?;
            }
            Some(_) => return Err(invalid("content must be a string or an array of parts.")),
        }
    }
    Ok(())
}

/// Checks the tools of a request and its functions, which are the earlier form of tools.
///
/// # Errors
/// Returns [`AiError::InvalidRequest`], which names the unsupported part.
pub fn check_tools(request: &Map<String, Value>) -> Result<()> {
    for tool in array(request.get("tools"), "tools")? {
        let kind = tool.get("type").and_then(Value::as_str);
        let Some((tool, kind)) = tool.as_object().zip(kind.filter(|kind| TOOL_TYPES.contains(kind))) else {
            return Err(invalid(r#"The type of a tool must be "function" or "custom"."#));
        };
        check_fields(tool, &["type", kind], "tools[]")?;
        if let Some(function) = tool.get(kind).filter(|function| !function.is_null()) {
            check_fields(object(function, "A function")?, &FUNCTION_FIELDS, &format!("tools[].{kind}"))?;
        }
    }
    for function in array(request.get("functions"), "functions")? {
        check_fields(object(function, "A function")?, &FUNCTION_FIELDS, "functions[]")?;
    }
    Ok(())
}

/// Returns the URLs of the images in checked messages.
pub fn image_urls(messages: &Value) -> impl Iterator<Item = &Value> {
    let contents = messages.as_array().into_iter().flatten().filter_map(|message| message.get("content")?.as_array());
    contents.flatten().filter_map(|part| part.get("image_url")?.get("url"))
}

fn check_part(part: &Value, is_of_model: bool) -> Result<()> {
    let part = object(part, "A part of content")?;
    match part.get("type").and_then(Value::as_str) {
        Some(kind @ ("text" | "refusal")) => check_text(part, kind),
        Some("image_url") => check_image(part),
        Some("thinking") if is_of_model => check_thinking(part),
        _ => Err(invalid(
            r#"The type of a part of content must be "text", "image_url" or "refusal", or "thinking" in a message of the model."#,
        )),
    }
}

/// Checks a part whose text has the name of its type.
fn check_text(part: &Map<String, Value>, kind: &str) -> Result<()> {
    check_fields(part, &["type", kind], "messages[].content[]")?;
    match part.get(kind) {
        Some(Value::String(_)) => Ok(()),
        _ => Err(invalid(&format!("{kind} must be a string."))),
    }
}

/// Upstreams also accept audio and files as the URL of an image.
fn check_image(part: &Map<String, Value>) -> Result<()> {
    check_fields(part, &["type", "image_url"], "messages[].content[]")?;
    let image = part.get("image_url").and_then(Value::as_object);
    let image = image.ok_or_else(|| invalid("image_url must be an object."))?;
    check_fields(image, &IMAGE_FIELDS, "messages[].content[].image_url")?;
    let url = image.get("url").and_then(Value::as_str).unwrap_or_default();
    let begins_with = |prefix: &str| url.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    match IMAGE_URLS.into_iter().any(begins_with) {
        true => Ok(()),
        false => Err(invalid("image_url.url must be a URL of http or https, or begin with data:image/.")),
    }
}

/// Checks the reasoning of a model, which code sends back: a text, or a list of texts.
fn check_thinking(part: &Map<String, Value>) -> Result<()> {
    check_fields(part, &THINKING_FIELDS, "messages[].content[]")?;
    let is_text = |text: &Value| text.get("type").and_then(Value::as_str) == Some("text");
    match part.get("thinking") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(texts)) if texts.iter().all(is_text) => {
            texts.iter().try_for_each(|text| check_text(object(text, "A text")?, "text"))
        }
        _ => Err(invalid("thinking must be a string or an array of texts.")),
    }
}

/// Checks that an object has only known members. A member that is null counts as absent.
fn check_fields(object: &Map<String, Value>, known: &[&str], path: &str) -> Result<()> {
    let unknown = object.iter().find(|(name, value)| !value.is_null() && !known.contains(&name.as_str()));
    match unknown {
        None => Ok(()),
        Some((name, _)) => {
            let name: String = name.chars().take(100).collect();
            Err(invalid(&format!("{path}.{name} is not supported.")))
        }
    }
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| invalid(&format!("{what} must be an object.")))
}

/// Returns the items of an optional array.
fn array<'a>(value: Option<&'a Value>, name: &str) -> Result<&'a [Value]> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(invalid(&format!("{name} must be an array."))),
    }
}

fn invalid(message: &str) -> AiError {
    AiError::InvalidRequest(message.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_content_with_the_price_of_text_is_passed_on() {
        let checked = |message: Value| check_messages(&json!([message])).map_err(|error| error.to_string());
        let part = |part: Value| checked(json!({ "role": "user", "content": [part] }));
        let thinking = |thinking: Value| {
            let part = json!({ "type": "thinking", "thinking": thinking });
            checked(json!({ "role": "assistant", "content": [part] }))
        };
        let image = |url: &Value| {
            let part = json!({ "type": "image_url", "image_url": { "url": url } });
            json!({ "role": "user", "content": [part] })
        };
        for message in [
            json!({ "role": "system", "content": "Be brief.", "name": "ada" }),
            json!({ "role": "user", "content": [{ "type": "text", "text": "Which animal is this?" },
                { "type": "image_url", "image_url": { "url": "https://a.example/cat.png", "detail": "low" } }] }),
            // A message of the model, as upstreams send it.
            json!({ "role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null,
                "reasoning_details": [{ "type": "reasoning.text", "text": "why" }],
                "tool_calls": [{ "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{}" } }] }),
            json!({ "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] }),
            json!({ "role": "assistant", "content": "{", "prefix": true, "partial": true, "parsed": { "n": 1 } }),
            json!({ "role": "assistant", "content": [
                { "type": "thinking", "thinking": "why", "signature": "c2ln" },
                { "type": "thinking", "thinking": [{ "type": "text", "text": "why" }], "closed": true },
                { "type": "text", "text": "4" },
            ] }),
            image(&json!("HTTP://a.example/cat.png")),
            image(&json!("data:image/png;base64,AAAA")),
            json!({ "role": "tool", "tool_call_id": "call_1", "content": "4" }),
        ] {
            assert_eq!(checked(message.clone()), Ok(()), "{message}");
        }
        for (rejected, named) in [
            (
                part(json!({ "type": "input_audio", "input_audio": { "data": "", "format": "wav" } })),
                "The type of a part",
            ),
            (part(json!({ "type": "file", "file": { "file_data": "" } })), "The type of a part"),
            (part(json!("text")), "A part of content must be"),
            (part(json!({ "text": "without a type" })), "The type of a part"),
            (part(json!({ "type": "text", "text": 1 })), "text must be a string"),
            (part(json!({ "type": "image_url", "image_url": "https://a.example" })), "image_url must be an object"),
            (
                part(json!({ "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } })),
                "messages[].content[].cache_control is not supported",
            ),
            (
                part(json!({ "type": "text", "text": "x", "input_audio": {} })),
                "messages[].content[].input_audio is not supported",
            ),
            (
                part(json!({ "type": "image_url", "image_url": { "url": "x", "file_id": "y" } })),
                "messages[].content[].image_url.file_id is not supported",
            ),
            (checked(image(&json!("data:audio/wav;base64,AAAA"))), "image_url.url must be"),
            (checked(image(&json!("data:application/pdf;base64,AAAA"))), "image_url.url must be"),
            (checked(image(&json!("file:///etc/passwd"))), "image_url.url must be"),
            (checked(image(&json!({}))), "image_url.url must be"),
            (checked(image(&Value::Null)), "image_url.url must be"),
            (part(json!({ "type": "thinking", "thinking": "why" })), "The type of a part"),
            (thinking(json!(1)), "thinking must be"),
            (thinking(json!([{ "type": "image_url", "image_url": {} }])), "thinking must be"),
            (thinking(json!([{ "type": "text", "text": "x", "cache_control": {} }])), "content[].cache_control"),
            (checked(json!("x")), "A message must be an object"),
            (checked(json!({ "role": "user", "content": {} })), "content must be"),
            (checked(json!({ "role": "user", "content": "x", "cache_control": {} })), "messages[].cache_control"),
            (checked(json!({ "role": "assistant", "audio": { "id": "audio_1" } })), "messages[].audio"),
            (checked(json!({ "role": "assistant", "tool_calls": {} })), "tool_calls must be an array"),
            (
                checked(json!({ "role": "assistant", "tool_calls": [{ "id": "call_1", "cache_control": {} }] })),
                "messages[].tool_calls[].cache_control",
            ),
        ] {
            let error = rejected.unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn tools_have_no_marks_with_a_price() {
        let checked = |request: Value| check_tools(request.as_object().unwrap()).map_err(|error| error.to_string());
        // The names of parameters are those of the code.
        let function = json!({ "name": "f", "strict": true, "parameters": { "properties": { "cache_control": {} } } });
        let custom = json!({ "name": "run", "format": { "type": "text" } });
        for request in [
            json!({}),
            json!({ "tools": null, "functions": [function] }),
            json!({ "tools": [{ "type": "function", "function": function }, { "type": "custom", "custom": custom }] }),
        ] {
            assert_eq!(checked(request.clone()), Ok(()), "{request}");
        }
        for (request, named) in [
            (json!({ "tools": {} }), "tools must be an array"),
            (json!({ "tools": ["function"] }), "The type of a tool"),
            (json!({ "tools": [{ "type": "function", "cache_control": {} }] }), "tools[].cache_control is not"),
            (
                json!({ "tools": [{ "type": "function", "function": { "cache_control": {} } }] }),
                "tools[].function.cache_control is not",
            ),
            (json!({ "functions": [{ "cache_control": {} }] }), "functions[].cache_control is not"),
        ] {
            let error = checked(request).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
