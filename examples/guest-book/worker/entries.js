// The entries of the guest book, one object each in env.storage.

const PREFIX = 'entries/'
const PAGE = 20

// list() returns keys in ascending order. An id begins with the time that is left until the last possible date, so the
// newest entry comes first.
const LAST_DATE = 8.64e15
const MINUTE = 60_000
const DAY = 24 * 60 * MINUTE

export function newId() {
  return `${LAST_DATE - Date.now()}-${crypto.randomUUID()}`
}

export function isId(id) {
  return /^\d{16}-[0-9a-f-]{36}$/.test(id)
}

// Whether the id is of a form from the last day. A visitor could send any id, and a time in the future would keep the
// entry at the top.
export function isRecentId(id) {
  if (!isId(id)) return false
  const age = Date.now() - (LAST_DATE - Number(id.slice(0, 16)))
  return age > -MINUTE && age < DAY
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
