//! The bodies of responses with the content of zones, which may be too large for memory.

use ::dns::{RrsetChanges, ZoneReader};

use crate::http::{BodyWriter, Bytes, Describe, Streamed, WithEtag, ZonefileBody};
use crate::problem::Problem;

/// Renders a zone with all its rrsets.
pub(super) async fn zone<R: Describe>(mut zone: ZoneReader) -> Result<WithEtag<Streamed<R>>, Problem> {
    let serial = zone.zone().serial;
    let body = async move |body: &mut BodyWriter| {
        body.open_object(zone.zone()).await?;
        body.write(b",\"rrsets\":[").await?;
        let mut is_first = true;
        while let Some(page) = zone.next_page().await? {
            body.write_items(page.iter().map(|stored| zone.rrset(stored)), &mut is_first).await?;
        }
        body.write(b"]}").await
    };
    Ok(WithEtag(serial, Streamed::produce("application/json", body).await?))
}

/// Renders a zone file.
pub(super) async fn zonefile(mut zone: ZoneReader) -> Result<WithEtag<Streamed<Bytes>>, Problem> {
    let serial = zone.zone().serial;
    let body = async move |body: &mut BodyWriter| {
        while let Some(lines) = zone.next_lines().await? {
            body.write(lines.as_bytes()).await?;
        }
        Ok(())
    };
    Ok(WithEtag(serial, Streamed::produce(ZonefileBody::TYPE, body).await?))
}

/// Renders the rrsets that a change adds, changes and removes, in an object that begins with these fields.
pub(super) async fn changes<R: Describe>(
    serial: u32,
    fields: serde_json::Map<String, serde_json::Value>,
    changes: RrsetChanges,
) -> Result<WithEtag<Streamed<R>>, Problem> {
    let body = async move |body: &mut BodyWriter| {
        body.open_object(&fields).await?;
        let separator = if fields.is_empty() { "" } else { "," };
        body.write(format!("{separator}\"added\":[").as_bytes()).await?;
        body.write_items(changes.added(), &mut true).await?;
        body.write(b"],\"changed\":[").await?;
        body.write_items(changes.changed(), &mut true).await?;
        body.write(b"],\"removed\":[").await?;
        body.write_items(changes.removed(), &mut true).await?;
        body.write(b"]}").await
    };
    Ok(WithEtag(serial, Streamed::produce("application/json", body).await?))
}
