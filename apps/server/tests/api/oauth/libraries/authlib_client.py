"""The code flow, refresh, validation, revocation and the device flow with Authlib."""

import json
import sys
import time
from urllib.parse import parse_qsl, urlsplit

import requests
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"

given = json.loads(sys.argv[1])
issuer = given["issuer"]


def post(path, body):
    """Calls the API with the login session of the user, as the dashboard does."""
    response = requests.post(issuer + path, json=body, headers={"Authorization": f"Bearer {given['session']}"})
    response.raise_for_status()
    return response


document = requests.get(get_well_known_url(issuer, external=True)).text
metadata = AuthorizationServerMetadata(json.loads(document))
assert metadata["issuer"] == issuer
# Authlib accepts only https URLs; the server of the test speaks http on a loopback address.
AuthorizationServerMetadata(json.loads(document.replace("http://", "https://"))).validate()


class Validator(JWTBearerTokenValidator):
    """Validates access tokens with the metadata only."""

    def get_jwks(self):
        return requests.get(metadata["jwks_uri"]).json()


validator = Validator(issuer=metadata["issuer"], resource_server=metadata["svc_access_token_audience"])


def session(**options):
    """A client of this server."""
    return OAuth2Session(
        given["clientId"],
        given["clientSecret"],
        token_endpoint_auth_method=given["authentication"],
        revocation_endpoint_auth_method=given["authentication"],
        redirect_uri=given["redirectUri"],
        code_challenge_method="S256",
        scope=given["scope"],
        **options,
    )


def assert_access(client):
    """Validates the access token, calls the API with it and returns its claims."""
    claims = validator.authenticate_token(client.token["access_token"])
    validator.validate_token(claims, ["account:read"], None)
    assert claims["client_id"] == given["clientId"]
    assert claims["scope"] == client.token["scope"]
    response = client.get(issuer + "/v1/me")
    assert (response.status_code, response.json()["id"]) == (200, claims["sub"])
    return claims


def assert_ended(client):
    """Asserts that neither token works."""
    refused = requests.get(issuer + "/v1/me", headers={"Authorization": f"Bearer {client.token['access_token']}"})
    assert refused.status_code == 401 and 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
    assert error_of(lambda: client.refresh_token(metadata["token_endpoint"])) == "invalid_grant"


def error_of(action):
    """The OAuth error of an action that fails."""
    try:
        action()
    except OAuthError as error:
        return error.error
    raise AssertionError("the action succeeded")


def code_flow():
    """Returns a client with the tokens of a code."""
    client = session()
    verifier = generate_token(48)
    url, state = client.create_authorization_url(metadata["authorization_endpoint"], code_verifier=verifier)
    redirect = post("/v1/oauth/authorize", dict(parse_qsl(urlsplit(url).query))).json()["redirect"]
    assert dict(parse_qsl(urlsplit(redirect).query))["iss"] == issuer
    client.fetch_token(
        metadata["token_endpoint"], authorization_response=redirect, state=state, code_verifier=verifier
    )
    return client


def device_flow():
    """Returns a client with the tokens of a device code."""
    client = session()
    auth = client.client_auth(given["authentication"])
    url, form = metadata["device_authorization_endpoint"], {"scope": given["scope"]}
    # `withhold_token` sends a request without an access token.
    device = client.post(url, data=form, auth=auth, withhold_token=True).json()

    def poll():
        return client.fetch_token(
            metadata["token_endpoint"], grant_type=DEVICE_CODE, device_code=device["device_code"]
        )

    assert error_of(poll) == "authorization_pending"
    post("/v1/oauth/device/approve", {"userCode": device["user_code"]})
    time.sleep(device["interval"] + 0.1)
    poll()
    return client


first = code_flow()
claims = assert_access(first)
first.refresh_token(metadata["token_endpoint"])
assert assert_access(first)["sid"] == claims["sid"]
refresh_token = first.token["refresh_token"]
revoked = first.revoke_token(metadata["revocation_endpoint"], refresh_token, token_type_hint="refresh_token")
assert revoked.status_code == 200, revoked.text
assert_ended(first)

if given["device"]:
    device = device_flow()
    assert_access(device)
    revoked = device.revoke_token(metadata["revocation_endpoint"], device.token["access_token"])
    assert revoked.status_code == 200, revoked.text
    assert_ended(device)
print(json.dumps(dict(claims)))
