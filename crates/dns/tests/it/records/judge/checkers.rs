//! The programs of nameservers that check zone files. Both tell every line that is wrong.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use super::{Judge, Verdict};
use crate::records::ZONE;

/// What a zone must have to be one.
const HEAD: &str = "$TTL 300\n@ SOA ns1 host 1 3600 600 86400 300\n@ NS ns1\nns1 A 192.0.2.1\n";

/// Debian's packages, unpacked by `cargo xtask test`.
fn unpacked() -> Option<PathBuf> {
    std::env::var_os("SVC_TEST_NAMESERVERS").map(PathBuf::from)
}

pub(super) fn program(judge: Judge) -> Option<PathBuf> {
    let name = if judge == Judge::Bind { "named-checkzone" } else { "kzonecheck" };
    let own = unpacked().into_iter().flat_map(|root| ["usr/bin", "usr/sbin"].map(|folder| root.join(folder)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.chain(std::env::split_paths(&path)).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether the judge would load the zone file, and what it says.
pub(crate) fn checks(judge: Judge, text: &str) -> Result<String, String> {
    match judge {
        // Names of hosts are not checked, and addresses of nameservers not looked up.
        Judge::Bind => run(judge, &["-k", "ignore", "-i", "none", "-r", "ignore", ZONE], text),
        // It also looks for the addresses of nameservers; that the zone was loaded first is all that is asked here.
        Judge::Knot => run(judge, &["-v", "-o", ZONE], text)
            .or_else(|said| if said.contains("zone loader") { Err(said) } else { Ok(said) }),
        Judge::Dnspython => Ok(String::new()),
    }
}

/// The zone file as BIND writes it.
pub(crate) fn dumped(text: &str) -> String {
    run(Judge::Bind, &["-q", "-D", "-k", "ignore", "-i", "none", "-r", "ignore", ZONE], text).unwrap()
}

fn run(judge: Judge, arguments: &[&str], text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program(judge).unwrap());
    if let Some(root) = unpacked() {
        let libraries = root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let output = command.args(arguments).arg(&file).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    if output.status.success() { Ok(said) } else { Err(said) }
}

pub(super) fn judge(judge: Judge, records: &[(&str, &str)]) -> Vec<Verdict> {
    // Behind a quotation mark that is left open, or an escaped end of line, they may count lines otherwise than we do.
    let is_closed =
        |record: &(&str, &str)| record.1.matches('"').count().is_multiple_of(2) && !record.1.ends_with('\\');
    let chunks = records.chunk_by(|one, next| is_closed(one) && is_closed(next));
    chunks.flat_map(|records| judge_some(judge, records)).collect()
}

fn judge_some(judge: Judge, records: &[(&str, &str)]) -> Vec<Verdict> {
    let mut text = HEAD.to_owned();
    for (at, (kind, data)) in records.iter().enumerate() {
        // A fault that shows at the end of a line is told of the next.
        let line = if fits(kind, data) { format!("v{at} {kind} {data}\n\n") } else { "\n\n".to_owned() };
        text.push_str(&line);
    }
    let said = checks(judge, &text).unwrap_or_else(|said| said);
    let mut refused: HashMap<usize, String> = HashMap::new();
    for (line, why) in said.lines().filter_map(|line| fault(judge, line)) {
        let at = line.checked_sub(HEAD.lines().count() + 1).unwrap_or_else(|| panic!("the head is refused: {why}"));
        refused.insert(at / 2, why);
    }
    let verdicts = records.iter().enumerate().map(|(at, (kind, data))| match refused.remove(&at) {
        _ if !fits(kind, data) => Verdict::Unsaid,
        Some(why) => Verdict::Refused(why),
        None => Verdict::Taken(None),
    });
    verdicts.collect()
}

/// Whether it stays on its line, so that the next is judged by itself. Nowhere but at the apex is there an SOA.
fn fits(kind: &str, data: &str) -> bool {
    kind != "SOA" && !data.chars().any(|c| c.is_control() && c != '\t')
}

/// The line that is refused, and why: `dns_rdata_fromtext: zone:7: near …` or `… file 'zone', line 6 (…)`.
fn fault(judge: Judge, said: &str) -> Option<(usize, String)> {
    let line = match judge {
        Judge::Bind => {
            let fault = said.strip_prefix("dns_rdata_fromtext: ").or_else(|| said.strip_prefix("dns_master_load: "))?;
            fault.split(':').nth(1)?
        }
        _ => said.split_once("', line ")?.1.split(' ').next()?,
    };
    Some((line.parse().ok()?, said.to_owned()))
}
