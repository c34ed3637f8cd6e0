//! Conversion of the document's names to Rust names.

/// Converts names such as `orgSlug`, `X-Svc-Git-Commit` and `deployments.create` to snake case.
pub fn snake(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() {
            snake.push('_');
        } else if c.is_ascii_uppercase() && !snake.is_empty() && !snake.ends_with('_') {
            snake.extend(['_', c.to_ascii_lowercase()]);
        } else {
            snake.push(c.to_ascii_lowercase());
        }
    }
    if matches!(snake.as_str(), "type" | "ref" | "in" | "for" | "use") { format!("r#{snake}") } else { snake }
}

/// Converts a name to Pascal case, for types and variants.
pub fn pascal(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(capitalize).collect()
}

fn capitalize(word: &str) -> String {
    let shouted = word.chars().all(|c| !c.is_ascii_lowercase());
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + &if shouted { rest.to_ascii_lowercase() } else { rest.to_owned() }
}

/// Converts a field name like serde's `camelCase`.
pub fn camel(field: &str) -> String {
    let pascal = pascal(field.trim_start_matches("r#"));
    let (first, rest) = pascal.split_at(1.min(pascal.len()));
    first.to_ascii_lowercase() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_rust_conventions() {
        for (name, expected) in
            [("orgSlug", "org_slug"), ("X-Svc-Git-Dirty", "x_svc_git_dirty"), ("me.get", "me_get"), ("type", "r#type")]
        {
            assert_eq!(snake(name), expected);
        }
        for (name, expected) in [("limit.projects", "LimitProjects"), ("pending_dns", "PendingDns"), ("TXT", "Txt")] {
            assert_eq!(pascal(name), expected);
        }
        for name in ["type", "nextCursor", "id", "hasWorker"] {
            assert_eq!(camel(&snake(name)), name);
        }
        assert_ne!(camel(&snake("managed_by")), "managed_by");
    }
}
