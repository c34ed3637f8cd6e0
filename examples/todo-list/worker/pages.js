const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = text => text.replace(/[&<>"]/g, c => escapes[c])

const page = body => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>To do</title>
<link rel="stylesheet" href="/style.css">
<h1>To do</h1>
${body}
</html>
`

export const listPage = ({ tasks, newId }) => page(`
<form method="post" action="/">
<input type="hidden" name="id" value="${newId}">
<label>Task <input name="title" maxlength="200" required autofocus></label>
<label>Due <input name="due" type="date"></label>
<button>Add</button>
</form>
<ul>
${tasks.map(item).join('')}</ul>
${tasks.some(task => task.done) ? '<form method="post" action="/clear"><button>Remove completed tasks</button></form>' : ''}`)

const item = ({ id, title, due, done, late }) => `<li${done ? ' class="done"' : ''}>
<span>${escaped(title)}</span>${due ? ` <small>${late ? 'overdue since' : 'due'} ${due}</small>` : ''}
<form method="post" action="/done"><input type="hidden" name="id" value="${id}">
<button name="done" value="${!done}">${done ? 'Reopen' : 'Done'}</button></form>
</li>
`

export const messagePage = text => page(`<p>${escaped(text)}</p>
<p><a href="/">Back to the list</a></p>`)
