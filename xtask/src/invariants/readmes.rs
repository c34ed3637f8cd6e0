//! The README of each crate. It is short enough to be read before the code, and answers the same questions everywhere.

use std::path::Path;

use super::graph::Graph;

/// The points after the paragraph on the crate's purpose.
const POINTS: &[&str] = &["Used by", "Start reading", "Test"];
const MAX_LINES: usize = 12;

pub fn check(root: &Path, graph: &Graph) -> Vec<String> {
    let check = |(name, manifest): (&str, &std::path::PathBuf)| {
        let path = manifest.with_file_name("README.md");
        let readme = std::fs::read_to_string(&path).unwrap_or_default();
        fault(name, &readme).map(|fault| format!("{}: {fault}", path.strip_prefix(root).unwrap_or(&path).display()))
    };
    graph.manifests().filter_map(check).collect()
}

fn fault(name: &str, readme: &str) -> Option<String> {
    if readme.is_empty() {
        return Some("is missing or empty".to_owned());
    }
    if readme.lines().next() != Some(&format!("# {name}")) {
        return Some(format!("does not begin with `# {name}`"));
    }
    if let Some(missing) = POINTS.iter().find(|point| !readme.contains(&format!("- **{point}:** "))) {
        return Some(format!("has no point `{missing}`"));
    }
    (readme.lines().count() > MAX_LINES).then(|| format!("has more than {MAX_LINES} lines"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_readme_names_its_crate_and_answers_each_question() {
        let readme = |name: &str, points: &[&str]| {
            points
                .iter()
                .fold(format!("# {name}\n\nA purpose.\n\n"), |text, point| text + &format!("- **{point}:** x\n"))
        };
        assert_eq!(fault("orgs", &readme("orgs", POINTS)), None);
        for (readme, expected) in [
            (String::new(), "missing"),
            (readme("projects", POINTS), "# orgs"),
            (readme("orgs", &["Used by", "Test"]), "Start reading"),
            (readme("orgs", POINTS) + &"a line\n".repeat(10), "more than 12 lines"),
        ] {
            let found = fault("orgs", &readme).unwrap();
            assert!(found.contains(expected), "{found}");
        }
    }
}
