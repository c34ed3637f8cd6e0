//! Reports after a restore of the control plane.

use protocol::DatabaseReport;

use super::kit::{Kit, eventually};
use crate::control_plane::TOKEN;

#[tokio::test(flavor = "multi_thread")]
async fn restored_control_plane_receives_only_the_new_state() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let (changed, same) = (kit.desired("prj_a").clone(), kit.desired("prj_b").clone());
    let seen = ["prj_a", "prj_b"].map(|project| kit.core.reports_of(project, "database").len());
    // The backup has another state of one database.
    let restored = protocol::Database { revision: changed.revision + 1, size_bytes: 2 << 30, ..changed };
    kit.core.restore_with_part("prj_a", "database", serde_json::to_value(&restored).unwrap());
    for (project, seen, revision) in [("prj_a", seen[0], restored.revision), ("prj_b", seen[1], same.revision)] {
        eventually("a report", async || kit.core.reports_of(project, "database").len() > seen).await;
        let reports = kit.core.reports_of(project, "database").split_off(seen);
        for report in reports {
            let report: DatabaseReport = serde_json::from_value(report).unwrap();
            assert_eq!((report.revision, report.ready), (revision, true), "{project}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_control_plane_receives_the_generations_again() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let generation = kit.generation("prj_a").await;
    let reports = |kit: &Kit| {
        let reports = kit.core.reports_of("prj_a", "generation");
        reports.iter().filter(|report| report["key"] == generation.key).count()
    };
    // The first response after the restore contains changes or the full state.
    for is_full in [false, true] {
        kit.change("prj_a", |_| ());
        kit.applied("prj_a").await;
        let seen = reports(&kit);
        if is_full {
            kit.core.reject_until_relist().await;
        }
        kit.core.restore_with_part("prj_a", "database", serde_json::to_value(kit.desired("prj_a")).unwrap());
        kit.core.accept(TOKEN);
        eventually("the repeated report", async || reports(&kit) > seen).await;
    }
}
