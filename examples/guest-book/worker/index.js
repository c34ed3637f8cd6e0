import * as entries from './entries.js'
import * as moderator from './moderator.js'
import { bookPage, messagePage, signInPage } from './pages.js'

const MAX_BODY_CHARACTERS = 16 * 1024

// The error codes that a response may show to visitors: those of storage calls, and body_too_large.
const failures = {
  body_too_large: [413, 'The form is too large.'],
  invalid_argument: [400, 'This page does not exist.'],
  quota_exceeded: [507, 'The guest book is full.'],
  storage_unavailable: [503, 'The guest book is unavailable. Try again in a moment.'],
}

export default {
  async fetch(request, env) {
    if (!env.storage) return message(503, 'This project has no storage yet. Run `svc storage enable`.')
    const { origin, pathname } = new URL(request.url)
    const handler = handlers[`${request.method} ${pathname}`]
    if (!handler) return env.assets.fetch(request)
    // Pages of other sites must not send forms with the cookie of the moderator.
    if (request.method === 'POST' && request.headers.get('origin') !== origin) {
      return message(403, 'Send the form from this site.')
    }
    try {
      return await handler(request, env)
    } catch (error) {
      if (!failures[error.code]) throw error
      return message(...failures[error.code])
    }
  },
}

const handlers = {
  async 'GET /'(request, env) {
    const cursor = new URL(request.url).searchParams.get('cursor') ?? undefined
    const page = await entries.list(env.storage, cursor)
    const isModerator = await moderator.isSignedIn(request, env.ADMIN_KEY)
    return html(200, bookPage({ ...page, newId: entries.newId(), isModerator }))
  },

  async 'POST /'(request, env) {
    const form = await fields(request)
    const entry = { name: text(form, 'name', 80), message: text(form, 'message', 1000) }
    const id = form.get('id')
    if (!entries.isRecentId(id)) return message(400, 'This form has expired. Reload the guest book.')
    if (!entry.name || !entry.message) return message(400, 'Enter a name and a message.')
    // If a form is sent twice, both requests have the same id, and the second one stores nothing.
    await entries.add(env.storage, id, entry)
    return redirect('/')
  },

  async 'POST /delete'(request, env) {
    if (!(await moderator.isSignedIn(request, env.ADMIN_KEY))) return message(403, 'Sign in as the moderator first.')
    const id = (await fields(request)).get('id')
    if (entries.isId(id)) await entries.remove(env.storage, id)
    return redirect('/')
  },

  async 'GET /moderator'() {
    return html(200, signInPage())
  },

  async 'POST /moderator'(request, env) {
    const key = (await fields(request)).get('key')
    const cookie = await moderator.signIn(key, env.ADMIN_KEY)
    if (!cookie) return message(403, 'This is not the key of the moderator.')
    return redirect('/', { 'set-cookie': cookie })
  },
}

// The fields of the form in the body. Any other body has no fields.
async function fields(request) {
  let body = ''
  for await (const text of request.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    body += text
    if (body.length > MAX_BODY_CHARACTERS) throw Object.assign(new Error('body too large'), { code: 'body_too_large' })
  }
  return new URLSearchParams(body)
}

// Browsers count a line break as one character, and send two. A cut in the string could split a character.
function text(form, field, maxLength) {
  const value = (form.get(field) ?? '').trim().replaceAll('\r\n', '\n')
  return [...value].slice(0, maxLength).join('')
}

function html(status, body) {
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': "default-src 'self'; frame-ancestors 'none'",
  }
  return new Response(body, { status, headers })
}

function message(status, body) {
  return html(status, messagePage(body))
}

function redirect(location, headers = {}) {
  return new Response(null, { status: 303, headers: { location, ...headers } })
}
