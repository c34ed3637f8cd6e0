const MAX_BODY_CHARACTERS = 64 * 1024
const MAX_MESSAGES = 40

export default {
  async fetch(request, env) {
    const { origin, pathname } = new URL(request.url)
    if (!env.ai) return failure(503, 'This project has no AI yet. Run `svc ai enable`.')
    if (request.method === 'GET' && pathname === '/models') return env.ai.fetch('https://ai/v1/models')
    if (request.method !== 'POST' || pathname !== '/chat') return env.assets.fetch(request)
    // Each call costs credit, so pages of other sites must not make calls.
    if ((request.headers.get('origin') ?? origin) !== origin) return failure(403, 'Send the message from this site.')
    const chat = await parse(request)
    if (!chat) return failure(400, 'Send a model and the messages.')
    try {
      const events = await env.ai.chat({ ...chat, stream: true })
      return new Response(events, { headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' } })
    } catch (error) {
      return failure(error.status ?? 502, error.message)
    }
  },
}

const failure = (status, message) => Response.json({ error: { message } }, { status })

// Returns undefined for a malformed body. Passes on only what the page sends.
async function parse(request) {
  const body = await request.text()
  if (body.length > MAX_BODY_CHARACTERS) return
  try {
    const { model, messages } = JSON.parse(body)
    if (typeof model !== 'string' || !Array.isArray(messages) || messages.length > MAX_MESSAGES) return
    return { model, messages: messages.map(({ role, content }) => ({ role: String(role), content: String(content) })) }
  } catch {}
}
