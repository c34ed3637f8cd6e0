import { page } from './page.js'

// Handles a few paths. All other requests are served from assets/.
export default {
  async fetch(request, env) {
    const url = new URL(request.url)
    if (url.pathname === '/') return html(page(url.searchParams.get('name') ?? 'world'))
    if (url.pathname === '/api/time') return Response.json({ now: new Date().toISOString() })
    if (url.pathname === '/api/echo' && request.method === 'POST') {
      return new Response(request.body, { headers: { 'content-type': 'text/plain; charset=utf-8' } })
    }
    return env.assets.fetch(request)
  },
}

function html(text) {
  return new Response(text, { headers: { 'content-type': 'text/html; charset=utf-8' } })
}
