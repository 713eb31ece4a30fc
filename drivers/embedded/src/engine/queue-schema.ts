/**
 * The tables of work queues, part of the store's schema since format 2. They refer to topics by the catalog's id, which is never used
 * twice. Numbers of leases come from a counter of their queue and are never used twice either, so that a look at what is new is a look
 * behind the last number seen.
 */
export const queueSchema: string = `
  -- spec: the settings as JSON. next_lease: the number that the next lease gets. pending: records handed out and not settled.
  CREATE TABLE work_queue (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    topic      INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    spec       TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    next_lease INTEGER NOT NULL,
    pending    INTEGER NOT NULL,
    UNIQUE (topic, name)
  ) STRICT;

  -- next: the first offset that was never handed out. trimmed: no lease holds an offset below. A partition without a row begins at
  -- its first record.
  CREATE TABLE queue_partition (
    queue     INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    next      INTEGER NOT NULL,
    trimmed   INTEGER NOT NULL,
    PRIMARY KEY (queue, partition)
  ) STRICT, WITHOUT ROWID;

  -- A run of offsets of one partition that were handed out together, as far as they are not settled. open: how many. done: a bit for
  -- each offset from first on that is not, or no longer, this lease's; none: all are. deliveries: of each of them. wait_ms: how long
  -- the lease stands before its records are to be handed out again. holder: whose; none: they were given back, and wait.
  -- delivery: the lease that they were handed out with, where that is another one.
  CREATE TABLE queue_lease (
    queue      INTEGER NOT NULL,
    id         INTEGER NOT NULL,
    partition  INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    open       INTEGER NOT NULL,
    done       BLOB,
    deliveries INTEGER NOT NULL,
    wait_ms    REAL    NOT NULL,
    holder     INTEGER,
    delivery   INTEGER,
    PRIMARY KEY (queue, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX queue_lease_moved ON queue_lease (queue, delivery) WHERE delivery IS NOT NULL;

  -- A session that has taken records. nonce: the session's own number, so that it knows its row.
  CREATE TABLE queue_holder (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    nonce   TEXT    NOT NULL,
    pid     INTEGER NOT NULL,
    started TEXT    NOT NULL,
    place   TEXT    NOT NULL
  ) STRICT;
`
