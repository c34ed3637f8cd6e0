// The code flow, refresh, validation, revocation and the device flow with openid-client. jose validates access tokens.

import assert from 'node:assert/strict'
import { createRemoteJWKSet, jwtVerify } from 'jose'
import * as client from 'openid-client'
import { approve, approveDevice, failureOf, input } from './dashboard.mjs'

const authentication = {
  none: () => client.None(),
  client_secret_basic: () => client.ClientSecretBasic(input.clientSecret),
  client_secret_post: () => client.ClientSecretPost(input.clientSecret),
}[input.authentication]()
const config = await client.discovery(new URL(input.issuer), input.clientId, undefined, authentication, {
  algorithm: 'oauth2',
  // The server of the test speaks http on a loopback address.
  execute: [client.allowInsecureRequests],
})
const server = config.serverMetadata()
const keys = createRemoteJWKSet(new URL(server.jwks_uri))

function callApi(accessToken) {
  return client.fetchProtectedResource(config, accessToken, new URL('/v1/me', input.issuer), 'GET')
}

async function assertAccess(tokens) {
  const { payload: claims } = await jwtVerify(tokens.access_token, keys, {
    issuer: server.issuer,
    audience: server.svc_access_token_audience,
    typ: 'at+jwt',
    requiredClaims: ['iss', 'sub', 'aud', 'exp', 'iat', 'jti', 'client_id', 'scope', 'sid'],
  })
  assert.equal(claims.client_id, input.clientId)
  assert.equal(claims.scope, tokens.scope)
  const response = await callApi(tokens.access_token)
  assert.equal((await response.json()).id, claims.sub)
  return claims
}

async function assertEnded(tokens) {
  const refused = await failureOf(() => client.refreshTokenGrant(config, tokens.refresh_token))
  assert.equal(refused.error, 'invalid_grant')
  const challenged = await failureOf(() => callApi(tokens.access_token))
  assert.equal(challenged.status, 401)
  assert.equal(challenged.cause[0].parameters.error, 'invalid_token')
}

async function codeFlow() {
  const pkceCodeVerifier = client.randomPKCECodeVerifier()
  const expectedState = client.randomState()
  const url = client.buildAuthorizationUrl(config, {
    redirect_uri: input.redirectUri,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
    scope: input.scope,
    state: expectedState,
  })
  return client.authorizationCodeGrant(config, await approve(url), { pkceCodeVerifier, expectedState })
}

async function deviceFlow() {
  const device = await client.initiateDeviceAuthorization(config, { scope: input.scope })
  await approveDevice(device.user_code)
  return client.pollDeviceAuthorizationGrant(config, device)
}

const first = await codeFlow()
const claims = await assertAccess(first)
const next = await client.refreshTokenGrant(config, first.refresh_token)
assert.equal((await assertAccess(next)).sid, claims.sid)
await client.tokenRevocation(config, next.refresh_token, { token_type_hint: 'refresh_token' })
await assertEnded(next)

if (input.device) {
  const tokens = await deviceFlow()
  await assertAccess(tokens)
  await client.tokenRevocation(config, tokens.access_token, { token_type_hint: 'access_token' })
  await assertEnded(tokens)
}
console.log(JSON.stringify(claims))
