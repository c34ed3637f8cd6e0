// The code flow, refresh, validation, revocation and the device flow with oauth4webapi.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import * as oauth from 'oauth4webapi'
import { approve, approveDevice, failureOf, input } from './dashboard.mjs'

// The server of the test speaks http on a loopback address.
const insecure = { [oauth.allowInsecureRequests]: true }
const issuer = new URL(input.issuer)
const client = { client_id: input.clientId }
const authentication = {
  none: () => oauth.None(),
  client_secret_basic: () => oauth.ClientSecretBasic(input.clientSecret),
  client_secret_post: () => oauth.ClientSecretPost(input.clientSecret),
}[input.authentication]()

const discovered = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...insecure })
const server = await oauth.processDiscoveryResponse(issuer, discovered)
const audience = server.svc_access_token_audience

/** The claims of an access token, validated with the metadata only (RFC 9068 section 4). */
function validate(accessToken) {
  const request = new Request(new URL('/v1/me', issuer), { headers: { authorization: `Bearer ${accessToken}` } })
  return oauth.validateJwtAccessToken(server, request, audience, insecure)
}

function callApi(accessToken) {
  return oauth.protectedResourceRequest(accessToken, 'GET', new URL('/v1/me', issuer), undefined, undefined, insecure)
}

async function assertAccess(tokens) {
  const claims = await validate(tokens.access_token)
  assert.equal(claims.client_id, input.clientId)
  assert.equal(claims.scope, tokens.scope)
  const response = await callApi(tokens.access_token)
  assert.equal((await response.json()).id, claims.sub)
  return claims
}

async function refresh(refreshToken, parameters) {
  const options = { additionalParameters: parameters, ...insecure }
  const response = await oauth.refreshTokenGrantRequest(server, client, authentication, refreshToken, options)
  return oauth.processRefreshTokenResponse(server, client, response)
}

async function revoke(token) {
  const response = await oauth.revocationRequest(server, client, authentication, token, insecure)
  await oauth.processRevocationResponse(response)
}

async function assertEnded(tokens) {
  const refused = await failureOf(() => refresh(tokens.refresh_token))
  assert.equal(refused.error, 'invalid_grant')
  const challenged = await failureOf(() => callApi(tokens.access_token))
  assert.equal(challenged.status, 401)
  assert.equal(challenged.cause[0].parameters.error, 'invalid_token')
}

async function codeFlow() {
  const verifier = oauth.generateRandomCodeVerifier()
  const state = oauth.generateRandomState()
  const url = new URL(server.authorization_endpoint)
  for (const [name, value] of Object.entries({
    response_type: 'code',
    client_id: input.clientId,
    redirect_uri: input.redirectUri,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    scope: input.scope,
    state,
  })) {
    url.searchParams.set(name, value)
  }
  const parameters = oauth.validateAuthResponse(server, client, await approve(url), state)
  const response = await oauth.authorizationCodeGrantRequest(
    server, client, authentication, parameters, input.redirectUri, verifier, insecure,
  )
  return oauth.processAuthorizationCodeResponse(server, client, response)
}

async function deviceFlow() {
  const started = await oauth.deviceAuthorizationRequest(server, client, authentication, { scope: input.scope }, insecure)
  const device = await oauth.processDeviceAuthorizationResponse(server, client, started)
  const poll = async () => {
    const response = await oauth.deviceCodeGrantRequest(server, client, authentication, device.device_code, insecure)
    return oauth.processDeviceCodeResponse(server, client, response)
  }
  assert.equal((await failureOf(poll)).error, 'authorization_pending')
  await approveDevice(device.user_code)
  await sleep(device.interval * 1000 + 100)
  return poll()
}

const resource = await oauth.resourceDiscoveryRequest(new URL(audience), insecure)
const metadata = await oauth.processResourceDiscoveryResponse(new URL(audience), resource)
assert.deepEqual(metadata.authorization_servers, [input.issuer])

const first = await codeFlow()
assert.equal(first.scope, input.scope)
const claims = await assertAccess(first)

const narrowed = await refresh(first.refresh_token, { scope: 'account:read' })
assert.equal(narrowed.scope, 'account:read')
assert.equal((await assertAccess(narrowed)).sid, claims.sid)
const full = await refresh(narrowed.refresh_token)
assert.equal(full.scope, input.scope)
await assertAccess(full)
await revoke(full.refresh_token)
await assertEnded(full)

if (input.device) {
  const tokens = await deviceFlow()
  assert.notEqual((await assertAccess(tokens)).sid, claims.sid)
  await revoke(tokens.access_token)
  await assertEnded(tokens)
}
console.log(JSON.stringify(claims))
