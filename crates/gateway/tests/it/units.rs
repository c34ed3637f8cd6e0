//! The units in `deploy/systemd` can load each secret of their program. systemd reads the files as root, because the
//! users of the units cannot read them. The groups of the units exist.

use regex::Regex;

const SETTINGS: &str = include_str!("../../../../docs/settings.md");

/// The title of each program in `SETTINGS`, its unit, and the example of its settings.
const PROGRAMS: [(&str, &str, &str); 4] = [
    (
        "The control plane",
        include_str!("../../../../deploy/systemd/svc-server.service"),
        include_str!("../../../../deploy/systemd/server.env.example"),
    ),
    (
        "The node",
        include_str!("../../../../deploy/systemd/svc-node.service"),
        include_str!("../../../../deploy/systemd/node.env.example"),
    ),
    (
        "The git node",
        include_str!("../../../../deploy/systemd/svc-git.service"),
        include_str!("../../../../deploy/systemd/git.env.example"),
    ),
    (
        "The mail node",
        include_str!("../../../../deploy/systemd/svc-mail.service"),
        include_str!("../../../../deploy/systemd/mail.env.example"),
    ),
];

#[test]
fn units_can_load_each_secret() {
    let secret = Regex::new(r"(?m)^\| `\w+` or `(\w+)_FILE` \|").unwrap();
    for (title, unit, example) in PROGRAMS {
        let section = SETTINGS.split("\n## ").find(|section| section.lines().next() == Some(title)).unwrap();
        assert!(secret.is_match(section), "{title}");
        for found in secret.captures_iter(section) {
            let name = &found[1];
            let line = Regex::new(&format!(r"(?m)^(#?)Environment={name}_FILE=%d/(\w+)$")).unwrap();
            let found = line.captures(unit).unwrap_or_else(|| panic!("the unit cannot set {name}_FILE"));
            let (comment, id) = (&found[1], &found[2]);
            assert!(unit.contains(&format!("\n{comment}LoadCredential={id}:/etc/svc/credentials/{id}\n")), "{name}");
        }
        assert!(!example.contains("_FILE="), "{title}: the user of the unit cannot read the file");
    }
}

/// A unit with an unknown group does not start.
#[test]
fn groups_of_the_units_are_created() {
    const USERS: &str = include_str!("../../../../deploy/systemd/svc.sysusers.conf");
    let line = Regex::new(r"(?m)^#?SupplementaryGroups=(\S+)$").unwrap();
    let mut count = 0;
    for (title, unit, _) in PROGRAMS {
        for found in line.captures_iter(unit) {
            assert!(USERS.contains(&format!("\ng {} -\n", &found[1])), "{title}");
            count += 1;
        }
    }
    assert_eq!(count, 2);
}
