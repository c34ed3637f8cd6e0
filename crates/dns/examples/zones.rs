//! Lists the zones of an organization with their serial and DNSSEC state:
//! `SVC_DATABASE_URL=… cargo run -p dns --example zones -- <org id>`

use std::error::Error;

use dns::ZoneRepository as _;
use kernel::{ClockRng, OrgId, Paging, Secret};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "the example has only one setting, which the error names")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let org: OrgId = std::env::args().nth(1).ok_or("usage: zones <org id>")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "zones"), ClockRng::system())?;
    let mut connection = store.connection().await?;

    let mut paging = Paging::default();
    loop {
        let zones = connection.zone_list(org, None, &paging).await?;
        let Some(last) = zones.last() else { return Ok(()) };
        paging.after = Some(last.name.as_str().to_owned());
        for zone in zones {
            println!("{} {} DNSSEC {}", zone.name.as_str(), zone.serial, zone.dnssec);
        }
    }
}
