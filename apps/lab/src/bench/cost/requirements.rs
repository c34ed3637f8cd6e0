//! The requirements that other platforms document.

use anyhow::Result;

use super::State;
use crate::bench::report::Report;

const ABOUT: &str = "\
**Documented requirements.** Coolify and Dokploy document what a server should have; the first row is what was \
measured here. So the rows are not measurements of the same kind: the documented values include room for the \
operating system, for Docker and for builds on the server, and each container of a project comes on top. Neither \
project publishes the cost of a number of projects.";

/// The documented values, read in November 2026.
const DOCUMENTED: [[&str; 5]; 2] = [
    [
        "Coolify, documented minimum",
        "2 cores",
        "2 GB",
        "10 GB (30 GB in the documentation of 2025)",
        "[Start with self-hosted](https://github.com/coollabsio/coolify-docs/blob/25f2d4cd1bb77059430c22bf49c3f20d4e825258/content/docs/start-with-self-hosted.mdx), [installation, May 2025](https://github.com/coollabsio/coolify-docs/blob/e8b93f193988f98d2a96fef491e1c233b259fcd6/docs/get-started/installation.md)",
    ],
    [
        "Dokploy, documented minimum",
        "not stated",
        "2 GB",
        "30 GB",
        "[Installation](https://github.com/Dokploy/website/blob/b6c0ab8ae111dc5e330b7c188df06cac489ee3a4/apps/docs/content/docs/core/installation.mdx)",
    ],
];

/// Adds a table with the measured values and the documented ones.
pub fn compare(report: &mut Report, projects: usize, sites: &State) -> Result<()> {
    report.paragraph(ABOUT)?;
    report.columns(&["", "processor", "memory", "disk", "source"])?;
    let name = format!("this platform with {projects} static sites at idle, measured");
    report.row(&[&name, &format!("{} cores", sites.cores()), &sites.memory(), &sites.disk(), "above"])?;
    DOCUMENTED.iter().try_for_each(|row| report.row(row))
}
