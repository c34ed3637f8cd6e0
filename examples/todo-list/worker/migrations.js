// The schema of the database, which the first request creates. A migration is a list of statements that run in one
// transaction. Never change one that has been deployed: append another.

const migrations = [
  [
    `CREATE TABLE tasks (
      id uuid PRIMARY KEY,
      title text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      done_at timestamptz
    )`,
    'CREATE INDEX tasks_by_age ON tasks (created_at, id)',
  ],
  ['ALTER TABLE tasks ADD COLUMN due date'],
]

// The lock makes concurrent first requests wait for each other. It ends with the transaction of its batch.
const lock = { text: "SELECT pg_advisory_xact_lock(hashtext('migrations'))" }

// Whether this process has checked the schema. A promise cannot be shared instead: it belongs to the request that
// created it, and ends with it.
let isMigrated = false

// Runs the function after the pending migrations. A restore can replace the database by an older one while this process
// runs. So after an error about a missing table or column, runs the migrations and the function again.
export async function withSchema(db, run) {
  if (isMigrated) {
    try {
      return await run()
    } catch (error) {
      if (error.code !== UNDEFINED_TABLE && error.code !== UNDEFINED_COLUMN) throw error
    }
  }
  await migrate(db)
  isMigrated = true
  return run()
}

// Codes of errors (SQLSTATE).
const UNDEFINED_TABLE = '42P01'
const UNDEFINED_COLUMN = '42703'

async function migrate(db) {
  await db.batch([lock, { text: 'CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY)' }])
  const { rows } = await db.query('SELECT version FROM migrations')
  const applied = new Set(rows.map(row => row.version))
  for (const [index, statements] of migrations.entries()) {
    if (!applied.has(index + 1)) await apply(db, index + 1, statements)
  }
}

// All statements take effect, or none. If another request was faster, the first INSERT violates the primary key.
async function apply(db, version, statements) {
  const insert = { text: 'INSERT INTO migrations (version) VALUES ($1)', params: [version] }
  try {
    await db.batch([lock, insert, ...statements.map(text => ({ text }))])
  } catch (error) {
    const { rowCount } = await db.query('SELECT FROM migrations WHERE version = $1', [version])
    if (rowCount === 0) throw error
  }
}
