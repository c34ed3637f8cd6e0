//! Checks that each crate has a short README with the same points.

use std::path::Path;

use super::graph::Graph;

/// The required points after the introduction.
const POINTS: &[&str] = &["Used by", "Start reading", "Test"];
const MAX_LINES: usize = 12;

pub fn check(root: &Path, graph: &Graph) -> Vec<String> {
    let check = |(name, manifest): (&str, &std::path::PathBuf)| {
        let path = manifest.with_file_name("README.md");
        let readme = std::fs::read_to_string(&path).unwrap_or_default();
        violation(name, &readme).map(|text| format!("{}: {text}", path.strip_prefix(root).unwrap_or(&path).display()))
    };
    graph.manifests().filter_map(check).collect()
}

fn violation(name: &str, readme: &str) -> Option<String> {
    if readme.is_empty() {
        return Some("missing or empty".to_owned());
    }
    if readme.lines().next() != Some(&format!("# {name}")) {
        return Some(format!("does not start with `# {name}`"));
    }
    if let Some(missing) = POINTS.iter().find(|point| !readme.contains(&format!("- **{point}:** "))) {
        return Some(format!("the point `{missing}` is missing"));
    }
    (readme.lines().count() > MAX_LINES).then(|| format!("more than {MAX_LINES} lines"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readmes_need_a_title_and_all_points() {
        let readme = |name: &str, points: &[&str]| {
            points
                .iter()
                .fold(format!("# {name}\n\nA purpose.\n\n"), |text, point| text + &format!("- **{point}:** x\n"))
        };
        assert_eq!(violation("orgs", &readme("orgs", POINTS)), None);
        for (readme, expected) in [
            (String::new(), "missing"),
            (readme("projects", POINTS), "# orgs"),
            (readme("orgs", &["Used by", "Test"]), "Start reading"),
            (readme("orgs", POINTS) + &"a line\n".repeat(10), "more than 12 lines"),
        ] {
            let found = violation("orgs", &readme).unwrap();
            assert!(found.contains(expected), "{found}");
        }
    }
}
