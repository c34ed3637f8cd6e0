const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = text => text.replace(/[&<>"]/g, c => escapes[c])

export const page = name => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Hello</title>
<link rel="stylesheet" href="/style.css">
<h1>Hello, ${escaped(name)}</h1>
<p>The worker generates this page for each request. <a href="/about.html">About</a> is a file.
</html>
`
