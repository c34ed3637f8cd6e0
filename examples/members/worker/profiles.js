// What members write about themselves: a row for each user id of env.auth.users.

const UNDEFINED_TABLE = '42P01'

// Creates the table. The lock makes concurrent first requests wait for each other. It ends with the transaction.
const schema = [
  { text: "SELECT pg_advisory_xact_lock(hashtext('profiles'))" },
  { text: 'CREATE TABLE IF NOT EXISTS profiles (user_id text PRIMARY KEY, about text NOT NULL)' },
]

export async function find(db, ids) {
  const { rows } = await query(db, 'SELECT user_id, about FROM profiles WHERE user_id = ANY($1::text[])', [ids])
  return new Map(rows.map(row => [row.user_id, row.about]))
}

export async function save(db, id, about) {
  const text = `INSERT INTO profiles (user_id, about) VALUES ($1, $2)
    ON CONFLICT (user_id) DO UPDATE SET about = excluded.about`
  await query(db, text, [id, about])
}

export async function remove(db, id) {
  await query(db, 'DELETE FROM profiles WHERE user_id = $1', [id])
}

// Runs a statement. The table is missing at the first request, and after a restore of an older backup.
async function query(db, text, params) {
  try {
    return await db.query(text, params)
  } catch (error) {
    if (error.code !== UNDEFINED_TABLE) throw error
    await db.batch(schema)
    return db.query(text, params)
  }
}
