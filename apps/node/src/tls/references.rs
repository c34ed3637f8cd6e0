//! The certificates that the control plane lists for this node.

use std::collections::{BTreeSet, HashMap, HashSet};

use protocol::{CertificateReference, Certificates};

/// The references in a response of the control plane.
#[derive(Debug, Clone, Default)]
pub struct CertificateChanges {
    /// Whether the response is the full state. Projects that it does not list have no certificates.
    pub is_full: bool,
    /// The changed projects; `None` if a project no longer has certificates.
    pub changed: Vec<(String, Option<Certificates>)>,
    /// The projects whose part is unavailable.
    pub kept: BTreeSet<String>,
    /// The certificates that no project owns. Every response lists them.
    pub platform: Vec<CertificateReference>,
}

impl CertificateChanges {
    /// Returns whether no project changed.
    pub fn is_empty(&self) -> bool {
        !self.is_full && self.changed.is_empty() && self.kept.is_empty()
    }
}

/// The references of all projects.
#[derive(Debug, Default)]
pub struct References {
    projects: HashMap<String, Vec<CertificateReference>>,
    platform: Vec<CertificateReference>,
    /// Whether the full state was received.
    is_listed: bool,
    /// The projects whose first state was unavailable.
    unknown: HashSet<String>,
}

impl References {
    /// Applies the changes of a response.
    pub fn apply(&mut self, changes: CertificateChanges) {
        let CertificateChanges { is_full, changed, kept, platform } = changes;
        self.platform = platform;
        if is_full {
            self.is_listed = true;
            self.projects.retain(|project, _| kept.contains(project));
            self.unknown.clear();
        }
        for (project, certificates) in changed {
            self.unknown.remove(&project);
            match certificates {
                Some(certificates) => self.projects.insert(project, certificates.certificates),
                None => self.projects.remove(&project),
            };
        }
        self.unknown.extend(kept.into_iter().filter(|project| !self.projects.contains_key(project)));
    }

    /// Returns whether all references are known. Otherwise, a certificate without a reference may still be desired.
    pub fn is_complete(&self) -> bool {
        self.is_listed && self.unknown.is_empty()
    }

    /// Returns the desired certificate of each name. While a name moves to another project, two projects may list it:
    /// the certificate that expires last then counts.
    pub fn by_name(&self) -> HashMap<&str, &CertificateReference> {
        let mut by_name: HashMap<&str, &CertificateReference> = HashMap::new();
        for reference in self.projects.values().flatten().chain(&self.platform) {
            let found = by_name.entry(&reference.name).or_insert(reference);
            // RFC 3339 times in UTC of one precision sort like the times themselves.
            if found.not_after < reference.not_after {
                *found = reference;
            }
        }
        by_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(id: &str, name: &str, year: u16) -> CertificateReference {
        CertificateReference {
            id: id.to_owned(),
            name: name.to_owned(),
            not_after: format!("{year}-01-01T00:00:00.000Z"),
        }
    }

    fn ids(references: &References) -> Vec<&str> {
        let mut ids: Vec<_> = references.by_name().into_values().map(|reference| reference.id.as_str()).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn changes_replace_the_references_of_their_projects() {
        let mut references = References::default();
        let of = |certificates: Vec<CertificateReference>| Some(Certificates { certificates });
        let platform = vec![reference("wild", "*.apps.example", 2027)];
        let changed = vec![("one".to_owned(), of(vec![reference("a", "a.example", 2027)]))];
        references.apply(CertificateChanges { changed, platform: platform.clone(), ..Default::default() });
        assert!(!references.is_complete());
        let changed = vec![
            ("one".to_owned(), of(vec![reference("a", "a.example", 2027), reference("b", "b.example", 2027)])),
            ("two".to_owned(), of(vec![reference("newer", "a.example", 2028)])),
        ];
        references.apply(CertificateChanges { is_full: true, changed, platform, ..Default::default() });
        assert!(references.is_complete());
        assert_eq!(ids(&references), ["b", "newer", "wild"]);
        references.apply(CertificateChanges { changed: vec![("two".to_owned(), None)], ..Default::default() });
        assert_eq!(ids(&references), ["a", "b"]);
        references.apply(CertificateChanges { is_full: true, ..Default::default() });
        assert!(ids(&references).is_empty());
    }

    #[test]
    fn unavailable_part_keeps_the_last_references() {
        let mut references = References::default();
        let kept = BTreeSet::from(["one".to_owned()]);
        references.apply(CertificateChanges { is_full: true, kept: kept.clone(), ..Default::default() });
        assert!(!references.is_complete(), "the certificates of the project are unknown");
        let certificates = Certificates { certificates: vec![reference("a", "a.example", 2027)] };
        let changed = vec![("one".to_owned(), Some(certificates))];
        references.apply(CertificateChanges { changed, ..Default::default() });
        assert!(references.is_complete());
        references.apply(CertificateChanges { is_full: true, kept, ..Default::default() });
        assert_eq!(ids(&references), ["a"]);
        assert!(references.is_complete());
    }
}
