//! Prints the newest mails of a project: `SVC_DATABASE_URL=… cargo run -p mail --example log -- prj_…`

use std::error::Error;

use kernel::{ClockRng, Paging, ProjectId, Secret};
use mail::MessageRepository as _;
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "a single setting, and the error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let project: ProjectId = std::env::args().nth(1).ok_or("the project ID is missing")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "log"), ClockRng::system())?;
    for mail in store.connection().await?.message_list(project, None, &Paging::default()).await? {
        println!("{}  {}  {}  {}", mail.direction, mail.outcome, mail.sender, mail.recipients.join(" "));
    }
    Ok(())
}
