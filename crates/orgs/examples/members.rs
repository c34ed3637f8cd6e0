//! Lists all members of an organization, page by page:
//! `SVC_DATABASE_URL=… cargo run -p orgs --example members -- <org id>`

use std::error::Error;

use kernel::{ClockRng, Limits, Paging, Secret};
use orgs::{Orgs, Site};
use store::{Config, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "the example has one setting, and its error names it")]
    let url = std::env::var("SVC_DATABASE_URL").map_err(|error| format!("SVC_DATABASE_URL: {error}"))?;
    let org = std::env::args().nth(1).ok_or("missing argument: the organization id")?.parse()?;
    let store = Store::new(&Config::new(Secret::new(url), "members"), ClockRng::system())?;
    let orgs = Orgs::new(store, Limits::default(), Site::default());

    let mut paging = Paging::default();
    loop {
        let page = orgs.members(org, &paging).await?;
        for member in page.items {
            println!("{} {} {}", member.user_id, member.role, member.subject);
        }
        let Some(cursor) = page.next_cursor else {
            return Ok(());
        };
        paging = Paging::after(paging.limit, &cursor)?;
    }
}
