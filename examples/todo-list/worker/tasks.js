// The tasks of the list, one row each.

const MAX_TASKS = 500

export function isId(id) {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id)
}

// The date of an <input type="date">, null for an empty field, undefined for another text.
export function parseDate(text) {
  if (!text) return null
  // Date turns February 30 into March 2, and accepts the year 0, which Postgres does not have.
  return /^(?!0000)\d{4}-\d{2}-\d{2}$/.test(text) && new Date(text).toJSON()?.startsWith(text) ? text : undefined
}

export async function list(db) {
  const { rows } = await db.query(
    `SELECT id, title, due, done_at IS NOT NULL AS done, due < current_date AND done_at IS NULL AS late
     FROM tasks ORDER BY created_at, id LIMIT $1::int`,
    [MAX_TASKS],
  )
  return rows
}

// Adds a task. Returns false if the list is full. A task that exists stays as it is, and counts as added.
export async function add(db, { id, title, due }) {
  const { rowCount } = await db.query(
    `INSERT INTO tasks (id, title, due) SELECT $1::uuid, $2, $3::date
     WHERE (SELECT count(*) FROM tasks) < $4::int OR EXISTS (SELECT FROM tasks WHERE id = $1::uuid)
     ON CONFLICT (id) DO UPDATE SET id = excluded.id`,
    [id, title, due, MAX_TASKS],
  )
  return rowCount > 0
}

export async function setDone(db, id, done) {
  await db.query('UPDATE tasks SET done_at = CASE WHEN $2 THEN now() END WHERE id = $1', [id, done])
}

export async function removeDone(db) {
  const { rowCount } = await db.query('DELETE FROM tasks WHERE done_at IS NOT NULL')
  return rowCount
}
