//! Prints the stored generations of a project, newest first:
//! `SVC_DATABASE_URL=… cargo run -p databases --example generations -- prj_…`

use std::error::Error;

use databases::{Generation, GenerationRepository as _};
use kernel::{ClockRng, ProjectId, Secret, Time};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let project: ProjectId = std::env::args().nth(1).ok_or("the project ID is missing")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "generations"), ClockRng::system())?;
    for generation in store.connection().await?.generation_list(project, Time::UNIX_EPOCH, Time::UNIX_EPOCH).await? {
        let Generation { epoch, seq, kind, size_bytes, offsite_key, .. } = generation;
        println!("{epoch}.{seq} {kind} {size_bytes} bytes {offsite_key}");
    }
    Ok(())
}
