// The moderator signs in with the secret ADMIN_KEY, and then has a cookie that is signed with it. A new ADMIN_KEY
// invalidates all cookies.

// Only this host can set a cookie with the prefix __Host-, not other sites under the same domain.
const COOKIE = '__Host-moderator'
const MAX_KEY_LENGTH = 200
const SECONDS = 24 * 3600

// Returns the cookie, or null if the key is wrong or the project has no ADMIN_KEY.
export async function signIn(key, adminKey) {
  if (!key || key.length > MAX_KEY_LENGTH || !adminKey) return null
  // Comparing signatures instead of keys takes the same time for every wrong key.
  if (!(await verify(adminKey, 'sign in', await sign(key, 'sign in')))) return null
  const expires = String(Date.now() + SECONDS * 1000)
  const value = `${expires}.${(await sign(adminKey, expires)).toHex()}`
  return `${COOKIE}=${value}; Max-Age=${SECONDS}; Path=/; HttpOnly; Secure; SameSite=Strict`
}

export async function isSignedIn(request, adminKey) {
  const cookies = request.headers.get('cookie') ?? ''
  const [, expires, signature] = cookies.match(`(?:^|; )${COOKIE}=(\\d+)\\.([0-9a-f]{64})(?:;|$)`) ?? []
  if (!adminKey || !expires || Number(expires) < Date.now()) return false
  return verify(adminKey, expires, Uint8Array.fromHex(signature))
}

async function sign(key, text) {
  return new Uint8Array(await crypto.subtle.sign('HMAC', await hmacKey(key), bytes(text)))
}

async function verify(key, text, signature) {
  return crypto.subtle.verify('HMAC', await hmacKey(key), signature, bytes(text))
}

function hmacKey(key) {
  return crypto.subtle.importKey('raw', bytes(key), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify'])
}

function bytes(text) {
  return new TextEncoder().encode(text)
}
