//! The decision of a user about the request of a device.

use actix_web::web::Data;
use oauth::{DeviceConsent, DeviceDecision, OAuth, OAuthError};

use crate::authority::Session;
use crate::http::{Area, Body, Json, NoContent, Path, text_path_parameters};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("device_request", "/v1/oauth/device/{userCode}", request)
        .summary("Get the undecided request of a device, by the code that it shows")
        .codes(&[&OAuthError::NOT_CONFIGURED]);
    area.post("device_decide", "/v1/oauth/device/approve", decide)
        .summary("Approve or deny the request of a device")
        .codes(&[&OAuthError::NOT_CONFIGURED, &kernel::Code::NOT_FOUND]);
}

text_path_parameters! {
    UserCode: "The code that the device shows.", "WDJB-MJHT";
}

async fn request(
    _: Session,
    Path(UserCode(code)): Path<UserCode>,
    oauth: Data<OAuth>,
) -> Result<Json<DeviceConsent>, Problem> {
    Ok(Json(oauth.device_request(&code).await?))
}

async fn decide(by: Session, oauth: Data<OAuth>, Body(decision): Body<DeviceDecision>) -> Result<NoContent, Problem> {
    oauth.device_decide(&by.actor, by.user.id, decision).await?;
    Ok(NoContent)
}
