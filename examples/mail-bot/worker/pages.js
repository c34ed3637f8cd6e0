const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = text => text.replace(/[&<>"]/g, c => escapes[c])

const page = body => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Mail bot</title>
<link rel="stylesheet" href="/style.css">
<h1>Mail bot</h1>
${body}
</html>
`

export const listPage = mails => page(mails.length ? mails.map(article).join('') : '<p>No mail yet.</p>')

const article = ({ from, subject, size, replied, date }) => `<article>
<p>${escaped(subject) || '(no subject)'}</p>
<footer>${[hidden(from), date.toISOString().slice(0, 10), `${size} bytes`].map(escaped).join(', ')}
${replied ? '(replied)' : ''}</footer>
</article>
`

// The page is public, so it does not show whole addresses.
const hidden = address => address.replace(/^(.?)[^@]*/, '$1…') || 'no sender'

export const messagePage = text => page(`<p>${escaped(text)}</p>`)
