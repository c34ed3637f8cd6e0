//! `svc zones dnssec`: the signing of a zone.

use client::Client;
use client::types::{self, DnssecState, DnssecSwitch, Ds, DsReport, Zone};

use crate::error::CliError;
use crate::output::{fields, or_dash};
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Dnssec {
    /// Show the state of the signing, and the DS records for the registrar
    Status { zone: String },
    /// Sign a zone
    On { zone: String },
    /// Stop signing a zone. Remove the DS records at the registrar first, and wait until they have expired
    Off {
        zone: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Record the DS records of a zone, if the platform cannot read them from its nameserver
    Report {
        zone: String,
        /// A DS record as in a zone file: key tag, algorithm, digest type and digest in one argument
        #[arg(required = true, value_name = "DS", value_parser = parse_ds)]
        ds: Vec<Ds>,
    },
}

impl Dnssec {
    pub async fn run(self, svc: &Svc<'_>, (client, org): (&Client, &str)) -> Result<(), CliError> {
        let zone = match self {
            Self::Status { zone } => {
                let status = client.dns_dnssec(org, &zone).send().await?;
                svc.out.response(&status, show_status)?;
                if status.state == DnssecState::Signing && status.signer.is_none() {
                    svc.out.info(format!(
                        "The platform has not checked the signer of the zone yet. If this does not change within a \
                         minute, it has none: sign the zone at your nameserver, and record its DS records with `svc \
                         zones dnssec report {zone}`"
                    ));
                }
                return Ok(());
            }
            Self::On { zone } => client.dns_switch(org, &zone, &DnssecSwitch { enabled: true }).send().await?,
            Self::Off { zone, yes } => {
                let question =
                    format!("Resolvers that know DS records of {zone} reject it without signatures. Stop signing it?");
                prompt::require_yes(yes, &question, "changed")?;
                client.dns_switch(org, &zone, &DnssecSwitch { enabled: false }).send().await?
            }
            Self::Report { zone, ds } => client.dns_report(org, &zone, &DsReport { ds }).send().await?,
        };
        svc.out.response(&zone, show)?;
        if zone.dnssec.state == DnssecState::Signing {
            svc.out.info(format!("`svc zones dnssec status {}` shows the DS records when they are known", zone.name));
        }
        Ok(())
    }
}

fn show(zone: &Zone) -> String {
    fields(&[["state", zone.dnssec.state.as_str()], ["DS", &records(&zone.dnssec.ds)]])
}

fn show_status(status: &types::Dnssec) -> String {
    let types::Dnssec { state, ds, signer } = status;
    let signer = signer.as_ref();
    let serial = signer.and_then(|signer| signer.serial).map(|serial| serial.to_string());
    fields(&[
        ["state", state.as_str()],
        ["DS", &records(ds)],
        ["checked", &or_dash(signer.map(|signer| signer.observed_at.as_str()))],
        ["serial at the signer", &or_dash(serial.as_deref())],
        ["error", &or_dash(signer.and_then(|signer| signer.error.as_deref()))],
    ])
}

/// Formats DS records as in a zone file.
fn records(ds: &[Ds]) -> String {
    let texts = ds
        .iter()
        .map(|Ds { key_tag, algorithm, digest_type, digest }| format!("{key_tag} {algorithm} {digest_type} {digest}"));
    let texts: Vec<String> = texts.collect();
    or_dash(Some(texts.join(", ").as_str()).filter(|texts| !texts.is_empty()))
}

/// Parses a DS record as in a zone file. The digest may contain spaces.
fn parse_ds(text: &str) -> Result<Ds, String> {
    let mut words = text.split_whitespace();
    let mut number = |name: &str| {
        let number = words.next().and_then(|word| word.parse().ok());
        number.ok_or_else(|| format!("the {name} is not a number"))
    };
    let (key_tag, algorithm, digest_type) = (number("key tag")?, number("algorithm")?, number("digest type")?);
    let digest: String = words.collect();
    if digest.is_empty() {
        Err("the digest is missing".to_owned())
    } else {
        Ok(Ds { key_tag, algorithm, digest_type, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ds_records_are_read_as_in_a_zone_file() {
        let ds = parse_ds("36923 13 2 03C3 03C4").unwrap();
        assert_eq!(records(&[ds]), "36923 13 2 03C303C4");
        for (text, error) in [
            ("36923 ECDSA 2 03C3", "the algorithm is not a number"),
            ("36923 13", "the digest type is not a number"),
            ("36923 13 2", "the digest is missing"),
        ] {
            assert_eq!(parse_ds(text), Err(error.to_owned()));
        }
    }
}
