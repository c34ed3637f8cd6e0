import { membersPage, messagePage, welcomePage } from './pages.js'
import * as profiles from './profiles.js'

const MAX_BODY_CHARACTERS = 16 * 1024
const MEMBERS_PER_PAGE = 50

// The error codes that a response may show to visitors: those of env.auth and env.db, and body_too_large.
const failures = {
  '25006': [507, 'The database is full, so nothing can be changed.'],
  auth_unavailable: [503, 'Sign-in is unavailable. Try again in a moment.'],
  body_too_large: [413, 'The form is too large.'],
  database_unavailable: [503, 'The members are unavailable. Try again in a moment.'],
  invalid_argument: [400, 'This page does not exist.'],
  too_many_connections: [503, 'The site is busy. Try again in a moment.'],
}

export default {
  async fetch(request, env) {
    if (!env.auth || !env.db) return message(503, 'This project has no sign-in yet. Run `svc auth enable`.')
    const { origin, pathname } = new URL(request.url)
    const handler = handlers[`${request.method} ${pathname}`]
    if (!handler) return env.assets.fetch(request)
    // Pages of other sites must not send forms with the session of a member.
    if (request.method === 'POST' && request.headers.get('origin') !== origin) {
      return message(403, 'Send the form from this site.')
    }
    try {
      const user = await env.auth.users.current(request)
      if (!user && pathname !== '/') return redirect('/__svc/auth/login?next=/members')
      return await handler(request, env, user)
    } catch (error) {
      if (!failures[error.code]) throw error
      return message(...failures[error.code])
    }
  },
}

const handlers = {
  async 'GET /'(request, env, user) {
    return html(200, welcomePage(user))
  },

  async 'GET /members'(request, env, user) {
    const cursor = new URL(request.url).searchParams.get('cursor')
    const page = await env.auth.users.list({ limit: MEMBERS_PER_PAGE, cursor })
    const about = await profiles.find(env.db, [user.id, ...page.users.map(member => member.id)])
    return html(200, membersPage({ user, about, members: page.users, cursor: page.cursor }))
  },

  async 'POST /profile'(request, env, user) {
    const form = await fields(request)
    // Browsers count a line break as one character, and send two. A cut in the string could split a character.
    const about = (form.get('about') ?? '').trim().replaceAll('\r\n', '\n')
    await profiles.save(env.db, user.id, [...about].slice(0, 500).join(''))
    return redirect('/members')
  },

  // The user is deleted last, because it identifies the profile. Without it, all sessions of the user end.
  async 'POST /leave'(request, env, user) {
    await profiles.remove(env.db, user.id)
    await env.auth.users.delete(user.id)
    return redirect('/')
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

function html(status, body) {
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    // A page is for one visitor.
    'cache-control': 'no-store',
    'content-security-policy': "default-src 'self'; frame-ancestors 'none'",
  }
  return new Response(body, { status, headers })
}

function message(status, body) {
  return html(status, messagePage(body))
}

function redirect(location) {
  return new Response(null, { status: 303, headers: { location, 'cache-control': 'no-store' } })
}
