import { withSchema } from './migrations.js'
import { listPage, messagePage } from './pages.js'
import * as tasks from './tasks.js'

const MAX_BODY_CHARACTERS = 16 * 1024

// The error codes that a response may show to visitors: those of env.db and Postgres, and body_too_large.
const failures = {
  '25006': [507, 'The database is full, so the list is read-only.'],
  body_too_large: [413, 'The form is too large.'],
  database_unavailable: [503, 'The list is unavailable. Try again in a moment.'],
  too_many_connections: [503, 'The list is busy. Try again in a moment.'],
}

export default {
  async fetch(request, env) {
    if (!env.db) return message(503, 'This project has no database yet. Run `svc db enable`.')
    const { origin, pathname } = new URL(request.url)
    const handler = handlers[`${request.method} ${pathname}`]
    if (!handler) return env.assets.fetch(request)
    // Pages of other sites must not send forms.
    if (request.method === 'POST' && request.headers.get('origin') !== origin) {
      return message(403, 'Send the form from this site.')
    }
    try {
      return await handler(request, env.db)
    } catch (error) {
      if (!failures[error.code]) throw error
      return message(...failures[error.code])
    }
  },
}

const handlers = {
  async 'GET /'(request, db) {
    const list = await withSchema(db, () => tasks.list(db))
    return html(200, listPage({ tasks: list, newId: crypto.randomUUID() }))
  },

  async 'POST /'(request, db) {
    const form = await fields(request)
    // A cut in the string could split a character.
    const title = [...(form.get('title') ?? '').trim()].slice(0, 200).join('')
    const task = { id: form.get('id'), title, due: tasks.parseDate(form.get('due')) }
    if (!title || !tasks.isId(task.id) || task.due === undefined) return message(400, 'Enter a task, and a valid date.')
    // If a form is sent twice, both requests have the same id, and the second one adds nothing.
    const hasSpace = await withSchema(db, () => tasks.add(db, task))
    return hasSpace ? redirect('/') : message(409, 'The list is full. Remove completed tasks first.')
  },

  async 'POST /done'(request, db) {
    const form = await fields(request)
    const id = form.get('id')
    if (!tasks.isId(id)) return message(400, 'This task does not exist.')
    await withSchema(db, () => tasks.setDone(db, id, form.get('done') === 'true'))
    return redirect('/')
  },

  async 'POST /clear'(request, db) {
    await withSchema(db, () => tasks.removeDone(db))
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
    'content-security-policy': "default-src 'self'; frame-ancestors 'none'",
  }
  return new Response(body, { status, headers })
}

function message(status, body) {
  return html(status, messagePage(body))
}

function redirect(location) {
  return new Response(null, { status: 303, headers: { location } })
}
