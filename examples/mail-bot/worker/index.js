import * as mails from './mails.js'
import { listPage, messagePage } from './pages.js'
import { decodeWords } from './words.js'

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url)
    if (request.method !== 'GET' || pathname !== '/') return env.assets.fetch(request)
    if (!env.storage) return html(503, messagePage('This project has no storage yet. Run `svc storage enable`.'))
    try {
      return html(200, listPage(await mails.latest(env.storage)))
    } catch (error) {
      if (error.code !== 'storage_unavailable') throw error
      return html(503, messagePage('The list is unavailable. Try again in a moment.'))
    }
  },

  // If this function throws, the platform calls it again later with the same mail.
  async email(message, env) {
    if (!env.storage) throw new Error('This project has no storage. Run `svc storage enable`.')
    if (await mails.has(env.storage, message.id)) return
    const subject = shortLine(decodeWords(message.headers.get('subject') ?? ''))
    const replied = isFromPerson(message) && (await reply(message, subject, env.email))
    await mails.add(env.storage, message.id, { from: message.from, subject, size: message.rawSize, replied })
  },
}

// The subject of a reply must be one line. A cut in the string could split a character, so this cuts an array of
// characters.
function shortLine(text) {
  return [...text.replace(/\p{Cc}/gu, ' ')].slice(0, 200).join('')
}

// A reply to a program could cause a loop of replies (RFC 3834 section 2).
function isFromPerson({ from, headers }) {
  const automatic = (headers.get('auto-submitted') ?? 'no').trim().toLowerCase() !== 'no'
  const bulk = headers.has('list-id') || /^(bulk|junk|list)$/i.test(headers.get('precedence') ?? '')
  return from !== '' && !automatic && !bulk
}

// Codes of refused mail, for which another attempt does not help.
const permanent = ['invalid_message', 'invalid_recipient', 'invalid_sender', 'not_granted', 'suppressed', 'too_large']

// Returns whether the reply was sent.
async function reply(message, subject, email) {
  const headers = { 'Auto-Submitted': 'auto-replied' }
  const id = message.headers.get('message-id')
  if (id) Object.assign(headers, { 'In-Reply-To': id, References: id })
  const text = `Thank you for your mail. It has ${message.rawSize} bytes.\n`
  try {
    await email.send({
      from: message.to[0],
      to: message.from,
      subject: subject.startsWith('Re:') ? subject : `Re: ${subject}`,
      text,
      headers,
    })
    return true
  } catch (error) {
    if (!permanent.includes(error.code)) throw error
    return false
  }
}

function html(status, body) {
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': "default-src 'self'; frame-ancestors 'none'",
  }
  return new Response(body, { status, headers })
}
