const [form, input, select, list] = ['form', 'message', 'model', 'messages'].map((id) => document.getElementById(id))
const messages = []
// The limits of the worker.
const MAX_BODY_CHARACTERS = 64 * 1024
const MAX_MESSAGES = 40

const models = await (await fetch('/models')).json()
if (models.error) show('error', models.error.message)
for (const { id } of models.data ?? []) select.add(new Option(id))

form.addEventListener('submit', async (event) => {
  event.preventDefault()
  const button = form.querySelector('button')
  const question = { role: 'user', content: input.value.trim() }
  if (!question.content) return
  button.disabled = true
  input.value = ''
  show('user', question.content)
  const item = show('assistant', '')
  const answer = { role: 'assistant', content: '' }
  try {
    for await (const text of stream(await fetch('/chat', { method: 'POST', body: compose(question) }))) {
      answer.content += text
      item.textContent = answer.content
    }
    messages.push(question, answer)
  } catch (error) {
    show('error', error.message)
  } finally {
    button.disabled = false
    input.focus()
  }
})

// The body of a request. Omits the oldest exchanges of a conversation that exceeds the limits.
function compose(question) {
  // The number of messages is odd, so that the first one is a question.
  let recent = [...messages, question].slice(1 - MAX_MESSAGES)
  const body = () => JSON.stringify({ model: select.value, messages: recent })
  while (recent.length > 1 && body().length > MAX_BODY_CHARACTERS) recent = recent.slice(2)
  return body()
}

function show(kind, text) {
  const item = document.createElement('li')
  item.className = kind
  item.textContent = text
  list.append(item)
  return item
}

// The texts in the server-sent events of a response, as they arrive.
async function* stream(response) {
  if (!response.ok) throw new Error((await response.json()).error.message)
  let rest = ''
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      if (line === 'data: [DONE]') return
      if (line.startsWith('data: ')) yield JSON.parse(line.slice(6)).choices[0]?.delta?.content ?? ''
    }
  }
  throw new Error('The answer was interrupted.')
}
