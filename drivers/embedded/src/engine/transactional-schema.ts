/** The tables of transactions. What is staged lies outside of the log until its commit. */

/** A row id of `staged_batch` is the key of its transaction times this, plus the number of the batch within it. */
export const batchesPerTransaction: bigint = 1n << 24n

/** `CREATE TABLE` statements of transactions. */
export const transactionalSchema: string = `
  INSERT INTO store_value VALUES ('nextTransaction', 1);

  -- One transactional id. epoch: of the newest identity; incarnation: the epoch that the newest init gave; begun_epoch: of the newest
  -- transaction, which its token names. pid, started, place: where the session lives; place is empty once it was closed. key: of the newest transaction, 0 before the first. since: when it was begun, prepared or ended.
  CREATE TABLE transactional_id (
    producer    INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL UNIQUE,
    epoch       INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    timeout_ms  REAL    NOT NULL,
    pid         INTEGER NOT NULL,
    started     TEXT    NOT NULL,
    place       TEXT    NOT NULL,
    key         INTEGER NOT NULL,
    begun_epoch INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('none', 'open', 'prepared', 'committed', 'aborted')),
    since       INTEGER NOT NULL,
    records     INTEGER NOT NULL,
    reason      TEXT    NOT NULL
  ) STRICT;

  -- One batch that waits for its commit, inline in body or in a segment of its topic. flags: 1 some records carry ids, 2 a resend.
  CREATE TABLE staged_batch (
    id        INTEGER PRIMARY KEY,
    topic     INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    length    INTEGER NOT NULL,
    checksum  INTEGER NOT NULL,
    batch     BLOB    NOT NULL,
    flags     INTEGER NOT NULL,
    segment   INTEGER,
    position  INTEGER,
    body      BLOB
  ) STRICT;

  -- A partition that a transaction has batches for. sequence, recent: of its numbered batches, as of producer-state.ts.
  CREATE TABLE staged_place (
    key       INTEGER NOT NULL,
    topic     INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    stream    TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    recent    BLOB    NOT NULL,
    PRIMARY KEY (key, topic, partition)
  ) STRICT, WITHOUT ROWID;

  -- An offset that is stored when the transaction commits.
  CREATE TABLE staged_offset (
    key        INTEGER NOT NULL,
    topic      INTEGER NOT NULL,
    owner_kind TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    partition  INTEGER NOT NULL,
    stream     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    lineage    TEXT    NOT NULL,
    next       INTEGER NOT NULL,
    claim      INTEGER,
    PRIMARY KEY (key, topic, owner_kind, owner, partition)
  ) STRICT, WITHOUT ROWID;

  -- Transactions that were aborted and whose batches are to be removed.
  CREATE TABLE staged_garbage (key INTEGER PRIMARY KEY) STRICT;
`
