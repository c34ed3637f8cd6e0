//! The operator's own certificates.

use std::fs;
use std::path::Path;

use sandbox::Certificate;

use super::{HOST, NAMES, Rig, tls_config};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, RunningNode};

fn write_pair(folder: &Path, name: &str, certificate: &Certificate) {
    fs::write(folder.join(format!("{name}.key")), certificate.key()).unwrap();
    fs::write(folder.join(format!("{name}.crt")), certificate.chain()).unwrap();
}

fn write_pem(folder: &Path, name: &str, certificate: &Certificate) {
    fs::write(folder.join(format!("{name}.pem")), format!("{}{}", certificate.key(), certificate.chain())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_before_issued_certificates_and_are_reloaded() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path();
    let wildcard = Certificate::generate_for(&["*.apps.localhost"]);
    let [own, renewed, issued] = [(); 3].map(|()| Certificate::generate_for(&NAMES));
    write_pair(files, "Shop.localhost", &own);
    write_pem(files, "_.apps.localhost", &wildcard);
    // None of these is valid: the other files are used.
    write_pair(files, "wrong.localhost", &own);
    fs::write(files.join("lonely.localhost.crt"), own.chain()).unwrap();
    fs::write(files.join("broken.localhost.pem"), "no certificate").unwrap();
    fs::write(files.join("README"), "not a certificate").unwrap();
    // A link to itself is unreadable.
    std::os::unix::fs::symlink(files.join("loop.localhost.pem"), files.join("loop.localhost.pem")).unwrap();
    let rig = Rig::start_with(|config| config.tls.as_mut().unwrap().files = Some(files.to_owned())).await;
    let exact = Certificate::generate_for(&["one.apps.localhost"]);
    rig.core.issue("shop", HOST, &issued);
    rig.core.issue("one", "one.apps.localhost", &exact);
    let client = rig.client(&[&own, &renewed, &issued, &wildcard, &exact]);
    client.presents(HOST, &own).await;
    client.presents("one.apps.localhost", &wildcard).await;
    for wrong in ["wrong.localhost", "lonely.localhost", "broken.localhost", "loop.localhost"] {
        client.is_rejected(wrong).await;
    }
    rig.has_metrics(&["svc_node_tls_certificates{source=\"files\"} 2"]).await;
    assert!(client.get(HOST, "/").await.ends_with("home"));

    write_pair(files, "shop.localhost", &renewed);
    fs::remove_file(files.join("Shop.localhost.crt")).unwrap();
    fs::remove_file(files.join("Shop.localhost.key")).unwrap();
    client.presents(HOST, &renewed).await;
    // An invalid version does not replace the valid one.
    fs::write(files.join("shop.localhost.crt"), "half of a file").unwrap();
    fs::remove_file(files.join("_.apps.localhost.pem")).unwrap();
    client.presents("one.apps.localhost", &exact).await;
    client.presents(HOST, &renewed).await;
    fs::remove_file(files.join("shop.localhost.crt")).unwrap();
    fs::remove_file(files.join("shop.localhost.key")).unwrap();
    client.presents(HOST, &issued).await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_files_needs_no_control_plane() {
    let folder = tempfile::tempdir().unwrap();
    let (mut core, dir, own) = (ControlPlane::start().await, Dir::new(), Certificate::generate_for(&NAMES));
    core.stop().await;
    write_pem(folder.path(), HOST, &own);
    let node = RunningNode::start_as(&tls_config(&core, &dir, Some(folder.path().to_owned()))).await;
    let rig = Rig { core, dir, node };
    rig.client(&[&own]).presents(HOST, &own).await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_folder_fails_the_start() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let config = tls_config(&core, &dir, Some("/missing".into()));
    let error = format!("{:#}", node::Node::start(&config).err().unwrap());
    assert!(error.contains("cannot read the folder /missing"), "{error}");
}
