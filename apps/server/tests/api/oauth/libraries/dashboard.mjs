// The part of the user and the dashboard: approves the requests of a client with the user's login session.

/** The input of a script: its only argument, as JSON. */
export const input = JSON.parse(process.argv[2])

async function post(path, body) {
  const response = await fetch(new URL(path, input.issuer), {
    method: 'POST',
    headers: { authorization: `Bearer ${input.session}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return response.status === 204 ? null : response.json()
}

/** Approves the request of an authorization URL. Returns the URL to which the browser is redirected. */
export async function approve(authorizationUrl) {
  const parameters = Object.fromEntries(new URL(authorizationUrl).searchParams)
  const { redirect } = await post('/v1/oauth/authorize', parameters)
  return new URL(redirect)
}

/** Approves the request of a device, as the user who enters the code. */
export async function approveDevice(userCode) {
  await post('/v1/oauth/device/approve', { userCode })
}

/** Runs the action and returns its error. */
export async function failureOf(action) {
  try {
    await action()
  } catch (error) {
    return error
  }
  throw new Error('the action succeeded')
}
