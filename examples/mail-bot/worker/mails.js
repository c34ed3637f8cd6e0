// The received mails, one object each in env.storage.

const PREFIX = 'mails/'
const COUNT = 10

// The digits of ids, in ascending order.
const DIGITS = '0123456789abcdefghjkmnpqrstvwxyz'

// An id begins with the time of its creation, and list() returns keys in ascending order. Inverted digits place the
// newest mail first.
function keyOf(id) {
  const digits = id.slice('mail_'.length)
  return PREFIX + Array.from(digits, digit => DIGITS.at(-1 - DIGITS.indexOf(digit))).join('')
}

// Whether the mail was handled before. A mail can be delivered more than once.
export async function has(storage, id) {
  return (await storage.head(keyOf(id))) !== null
}

export async function add(storage, id, mail) {
  await storage.put(keyOf(id), JSON.stringify(mail), { contentType: 'application/json' })
}

export async function latest(storage) {
  const { objects } = await storage.list({ prefix: PREFIX, limit: COUNT })
  const mails = await Promise.all(objects.map(object => read(storage, object)))
  return mails.filter(mail => mail)
}

async function read(storage, { key, uploaded }) {
  const object = await storage.get(key)
  return object && { ...(await object.json()), date: uploaded }
}
