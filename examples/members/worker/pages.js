const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = text => text.replace(/[&<>"]/g, c => escapes[c])

// A provider may know no name of a user.
const nameOf = user => escaped(user.name ?? 'A member without a name')

const page = body => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Members</title>
<link rel="stylesheet" href="/style.css">
<h1><a href="/">Members</a></h1>
${body}
</html>
`

const signOut = '<form method="post" action="/__svc/auth/logout"><button>Sign out</button></form>'

export const welcomePage = user => page(user
  ? `<p>Hello, ${nameOf(user)}. <a href="/members">See the members</a></p>${signOut}`
  : '<p>Only members see the members.</p><p><a href="/__svc/auth/login?next=/members">Sign in</a></p>')

export const membersPage = ({ user, about, members, cursor }) => page(`
<p>You are signed in as <strong>${nameOf(user)}</strong>${user.email ? ` (${escaped(user.email)})` : ''}.</p>
<form method="post" action="/profile">
<label>About you <textarea name="about" maxlength="500">${escaped(about.get(user.id) ?? '')}</textarea></label>
<button>Save</button>
</form>
<ul>
${members.map(member => `<li><strong>${nameOf(member)}</strong> ${escaped(about.get(member.id) ?? '')}</li>\n`).join('')}</ul>
${cursor ? `<p><a href="/members?cursor=${encodeURIComponent(cursor)}">More members</a></p>` : ''}
${signOut}
<form method="post" action="/leave"><button>Delete my account</button></form>`)

export const messagePage = text => page(`<p>${escaped(text)}</p>
<p><a href="/">Back</a></p>`)
