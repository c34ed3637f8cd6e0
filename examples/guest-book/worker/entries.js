// The entries of the guest book, one object each in env.storage.

const PREFIX = 'entries/'
const PAGE = 20

// list() returns keys in ascending order. An id begins with the time that is left until the last possible date, so the
// newest entry comes first.
const LAST_DATE = 8.64e15

export function newId() {
  return `${LAST_DATE - Date.now()}-${crypto.randomUUID()}`
}

export function isId(id) {
  return /^\d{16}-[0-9a-f-]{36}$/.test(id)
}

// Stores an entry, unless the id is in use.
export async function add(storage, id, entry) {
  const options = { contentType: 'application/json', onlyIf: { absent: true } }
  await storage.put(PREFIX + id, JSON.stringify(entry), options)
}

export async function remove(storage, id) {
  await storage.delete(PREFIX + id)
}

// A page of entries, and the cursor of the next page.
export async function list(storage, cursor) {
  const page = await storage.list({ prefix: PREFIX, limit: PAGE, cursor })
  const entries = await Promise.all(page.objects.map(object => read(storage, object)))
  // An entry can be deleted between list() and get().
  return { entries: entries.filter(entry => entry), cursor: page.cursor }
}

async function read(storage, { key, uploaded }) {
  const object = await storage.get(key)
  return object && { ...(await object.json()), id: key.slice(PREFIX.length), date: uploaded }
}
