const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = text => text.replace(/[&<>"]/g, c => escapes[c])

const page = body => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Guest book</title>
<link rel="stylesheet" href="/style.css">
<h1><a href="/">Guest book</a></h1>
${body}
</html>
`

export const bookPage = ({ entries, cursor, newId, isModerator }) => page(`
<form method="post" action="/">
<input type="hidden" name="id" value="${newId}">
<label>Name <input name="name" maxlength="80" required></label>
<label>Message <textarea name="message" maxlength="1000" required></textarea></label>
<button>Sign</button>
</form>
${entries.map(entry => article(entry, isModerator)).join('')}
${cursor ? `<p><a href="/?cursor=${encodeURIComponent(cursor)}">Older entries</a></p>` : ''}`)

const article = ({ id, name, message, date }, isModerator) => `<article>
<p>${escaped(message)}</p>
<footer>${escaped(name)}, ${date.toISOString().slice(0, 10)}${isModerator ? deletion(id) : ''}</footer>
</article>
`

const deletion = id => `
<form method="post" action="/delete"><input type="hidden" name="id" value="${id}"><button>Delete</button></form>`

export const signInPage = () => page(`
<form method="post" action="/moderator">
<label>Key <input name="key" type="password" required></label>
<button>Sign in</button>
</form>`)

export const messagePage = text => page(`<p>${escaped(text)}</p>`)
